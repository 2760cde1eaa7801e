"""Making described networks narrower: which widths there are, and the network without the weakest filters.

A unit is a width that can shrink by itself: the filters of one layer, or of all layers whose outputs are added up, with
everything that follows them (the depthwise convolution and the norm behind it, the inputs of the next layer). Which
those are is found once for all widths of a network (`pruning_couplings`); the cutting is done on descriptions and
arrays, without modules. All of this is for the server: a client builds what comes out, from space `widths`.

Removing filters of a unit gives the network that the whole one is when those filters' channels are zero where the next
layers read them (but for group norm, whose statistics are then those of the channels that are left). Where a
convolution or a norm has groups, one filter of a unit is one channel in every group. The answer's layer is never a
unit, nor is a layer whose outputs are added to the network's input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll.core.messages import Array, Tensors
from atoll.errors import ArchitectureError, nearest
from atoll.spaces import canonical, cost
from atoll.spaces.pruned.couplings import Couplings, Segment, couplings, sides
from atoll.spaces.pruned.layers import Convolution, LayerDescription, Linear
from atoll.spaces.pruned.plan import read

JOINT = "+"  # between the names of units that are pruned as one


@dataclass(frozen=True)
class Unit:
    """A width of a network. `layers` make its channels; what follows them is not named."""

    name: str  # that of its first layer
    width: int
    layers: tuple[str, ...]


def units(arch: Mapping[str, Any]) -> list[Unit]:
    """The prunable widths in the network's order. Names stay the same while widths shrink, down to 1."""
    network = _Prunable.of(arch)
    return [Unit(name, network.widths[name], layers) for name, layers in network.found.units.items()]


def merged(units: Sequence[Unit], groups: Sequence[Sequence[str]]) -> list[Unit]:
    """Units with the user's groups as one unit each, in the place of its first.

    A word of a group is a unit's name, a layer's name or the path of a module around layers: it stands for every unit
    with a layer there. The members shrink together, by the same fraction: the width is that of the widest, and where
    it keeps k of W filters, a member of width w keeps w k / W, rounded up.
    """
    group_of: dict[str, int] = {}
    for number, words in enumerate(groups):
        for word in words:
            for unit in _matching(word, units):
                if group_of.setdefault(unit.name, number) != number:
                    raise ArchitectureError(
                        f"unit {unit.name!r} is in two groups, by {word!r} in the second: put the groups together",
                        code="unit-in-two-groups",
                    )
    result, done = [], set()
    for unit in units:
        number = group_of.get(unit.name, -1)
        if number == -1:
            result.append(unit)
        elif number not in done:
            done.add(number)
            members = [member for member in units if group_of.get(member.name) == number]
            result.append(
                Unit(
                    JOINT.join(member.name for member in members),
                    max(member.width for member in members),
                    tuple(layer for member in members for layer in member.layers),
                )
            )
    return result


def narrowed(arch: Mapping[str, Any], unit_name: str, keep: int) -> dict[str, Any]:
    """The description with `keep` filters in this unit, without weights. Shares what does not change with `arch`."""
    network = _Prunable.of(arch)
    return network.described(_targets(network.widths, unit_name, keep))


def prune(arch: Mapping[str, Any], weights: Tensors, unit_name: str, keep: int) -> tuple[dict[str, Any], Tensors]:
    """The description and the weights without the unit's filters of smallest L2 norm; the others stay in order.

    Of filters with equal norms the later ones go.
    """
    network = _Prunable.of(arch)
    targets = _targets(network.widths, unit_name, keep)
    strongest = {
        unit: np.argsort(-network.norms(weights, unit), kind="stable")[:width] for unit, width in targets.items()
    }
    chosen = {unit: np.sort(filters) for unit, filters in strongest.items()}
    return network.described(targets), network.cut(weights, chosen)


def filter_norms(arch: Mapping[str, Any], weights: Tensors, unit_name: str) -> Array:
    """The L2 norm of each filter of a unit, over the weights (not biases) of all layers that make its channels.

    Depthwise convolutions and norms follow those layers and do not count.
    """
    network = _Prunable.of(arch)
    if len(_members(network.widths, unit_name)) > 1:
        raise ArchitectureError(
            f"{unit_name!r} is several units: ask for the norms of one of them", code="several-units"
        )
    return network.norms(weights, unit_name)


def _matching(word: str, units: Sequence[Unit]) -> list[Unit]:
    meant = [unit for unit in units if unit.name == word]
    if not meant:
        meant = [unit for unit in units if any(f"{name}.".startswith(f"{word}.") for name in unit.layers)]
    if not meant:
        known = [unit.name for unit in units]
        raise ArchitectureError(
            f"no prunable layer {word!r} to put in a group; {nearest(word, known)}", code="unknown-unit"
        )
    return meant


def _members(widths: Mapping[str, int], name: str) -> list[str]:
    members = [name] if name in widths else name.split(JOINT)
    for member in members:
        if member not in widths:
            raise ArchitectureError(f"no unit {member!r} to prune; {nearest(member, widths)}", code="unknown-unit")
    return members


def _targets(widths: Mapping[str, int], name: str, keep: int) -> dict[str, int]:
    """What each unit of this name keeps."""
    members = _members(widths, name)
    widest = max(widths[member] for member in members)
    if isinstance(keep, bool) or not 1 <= keep <= widest:
        raise ArchitectureError(
            f"unit {name!r} cannot keep {keep} filters: it has {widest} and needs at least 1", code="width-out-of-range"
        )
    return {member: -(-widths[member] * keep // widest) for member in members}


@dataclass(frozen=True)
class _Prunable:
    """A network with its units: `widths` is how many filters each has."""

    arch: Mapping[str, Any]
    layers: Mapping[str, LayerDescription]
    found: Couplings
    widths: Mapping[str, int]

    @classmethod
    def of(cls, arch: Mapping[str, Any]) -> _Prunable:
        plan = read(arch)
        return cls(arch, plan.layers, *couplings(plan))

    def described(self, target: Mapping[str, int]) -> dict[str, Any]:
        """The description with these widths; it shares what does not change with the present one."""
        after = {**self.widths, **target}
        changed = {}
        for name in self._touched(target):
            total = {
                side: sum(stop - start for start, _, stop in _stretches(self.found.axes[name, side], after))
                for _, side in sides(name, self.layers[name])
            }
            if isinstance(self.layers[name], (Convolution, Linear)):
                new = {"inputs": total["in"], "outputs": total["out"]}
            else:
                new = {"channels": total["out"]}
            changed[name] = {**self.arch["layers"][name], **new}
        return {**self.arch, "layers": {**self.arch["layers"], **changed}}

    def cut(self, weights: Tensors, chosen: Mapping[str, Array]) -> Tensors:
        """The weights with the chosen filters of some units only, in the order they are given in."""
        kept = {unit: np.arange(width) for unit, width in self.widths.items()} | dict(chosen)
        changed: dict[str, Array] = {}
        for name in self._touched(chosen):
            changed |= self._cut_layer(name, weights, kept)
        return weights.replaced(changed)

    def norms(self, weights: Tensors, unit: str) -> Array:
        """The L2 norm of each filter of a unit, over all layers that make its channels."""
        width = self.widths[unit]
        squares = np.zeros(width)
        for name in self.found.units[unit]:
            weight = weights[f"{name}.weight"]
            own = np.square(weight.reshape(len(weight), -1), dtype=np.float64).sum(1)
            for start, segment, stop in _stretches(self.found.axes[name, "out"], self.widths):
                if segment.unit == unit:
                    squares += own[start:stop].reshape(width, segment.times).sum(1)
                elif width == 1 and segment.unit is None:  # its places count as fixed: see `Couplings`
                    squares += own[start:stop].sum()
        norms: Array = np.sqrt(squares)
        return norms

    def _touched(self, units: Mapping[str, Any]) -> list[str]:
        """The layers with places of these units."""
        names = [name for (name, _), axis in self.found.axes.items() if any(part.unit in units for part in axis)]
        return list(dict.fromkeys(names))

    def _cut_layer(self, name: str, weights: Tensors, kept: Mapping[str, Array]) -> dict[str, Array]:
        layer = self.layers[name]
        out = _places(self.found.axes[name, "out"], self.widths, kept)
        cut: dict[str, Array] = {}
        for parameter in (f"{name}.weight", f"{name}.bias"):
            if parameter in weights:
                cut[parameter] = weights[parameter][out]
        if isinstance(layer, (Convolution, Linear)):
            places = _places(self.found.axes[name, "in"], self.widths, kept)
            groups = layer.groups if isinstance(layer, Convolution) else 1
            # a filter sees the inputs of its group only, and every group loses the same ones
            cut[f"{name}.weight"] = cut[f"{name}.weight"][:, places[: len(places) // groups]]
        return cut


def _stretches(axis: Sequence[Segment], widths: Mapping[str, int]) -> Iterator[tuple[int, Segment, int]]:
    """Where each segment of a side begins and ends."""
    start = 0
    for segment in axis:
        stop = start + segment.times * (widths[segment.unit] if segment.unit else 1)
        yield start, segment, stop
        start = stop


def _places(axis: Sequence[Segment], widths: Mapping[str, int], kept: Mapping[str, Array]) -> Array:
    """The places of a side that stay."""
    parts = []
    for start, segment, stop in _stretches(axis, widths):
        if segment.unit is None:
            parts.append(np.arange(start, stop))
        else:
            parts.append(start + (kept[segment.unit][:, None] * segment.times + np.arange(segment.times)).ravel())
    return np.concatenate(parts)


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
