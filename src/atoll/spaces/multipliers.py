"""Width multipliers: every layer as much narrower, the baseline of networks that are pruned layer by layer."""

from __future__ import annotations

from typing import Any

from atoll.errors import ArchitectureError
from atoll.messages import Tensors
from atoll.spaces import canonical, cost
from atoll.spaces.pruning import narrowed, prune, units

HALVINGS = 20  # of the interval that a factor is looked for in: a millionth is finer than any filter


def scaled(arch: dict[str, Any], factor: float) -> dict[str, Any]:
    """The network with all widths times `factor`, rounded, at least one filter each."""
    if not 0 < factor <= 1:
        raise ArchitectureError(
            f"a width multiplier of {factor:g}: give a factor above 0 and at most 1, such as 0.5",
            code="multiplier-out-of-range",
        )
    for unit in units(arch):
        arch = narrowed(arch, unit.name, max(1, round(unit.width * factor)))
    return arch


def factor_within(arch: dict[str, Any], macs: int) -> float:
    """The largest factor whose network takes at most so many MACs."""
    if cost(arch).macs <= macs:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(scaled(arch, middle)).macs <= macs else (low, middle)
    if low == 0.0:
        raise ArchitectureError(
            f"no width multiplier gets down to {macs:,} MACs: one filter in each layer takes more",
            code="budget-too-small",
        )
    return low


def pruned_to(arch: dict[str, Any], weights: Tensors, wanted: dict[str, Any]) -> Tensors | None:
    """The weights with the filters of smallest L2 norm left out, layer by layer, until the widths are those wanted.

    None if that is no narrower version of the same network.
    """
    if arch.get("space") != "widths" or wanted.get("space") != "widths":
        return None
    widths = {unit.name: unit.width for unit in units(wanted)}
    for unit in units(arch):
        keep = widths.get(unit.name, 0)
        if not 1 <= keep <= unit.width:
            return None
        if keep < unit.width:
            arch, weights = prune(arch, weights, unit.name, keep)
    return weights if canonical(arch) == canonical(wanted) else None
