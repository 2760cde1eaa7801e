"""Filter pruning of described networks: their prunable widths, and the network without its weakest filters.

A unit is a width that can be pruned independently: the filters of one layer, or of all layers whose outputs are summed,
with everything that depends on them (the depthwise convolution and norm that follow, the inputs of the next layer).
Units are found once for all widths of a network (`couplings`). Pruning works on descriptions and arrays, without
modules. It happens on the server; a client builds the resulting network of space `widths`.

Pruning a filter gives the same outputs as setting its channel to zero where later layers read it, except for group
norm, whose statistics then cover the remaining channels only. In grouped convolutions and norms, one filter of a unit
is one channel in every group. The output layer is never a unit, nor is a layer whose outputs are added to the network's
input.
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

JOINT = "+"  # joins the names of units that are pruned together


@dataclass(frozen=True)
class Unit:
    """A prunable width. `layers` are those that produce its channels, not those that depend on them."""

    name: str  # that of its first layer
    width: int
    layers: tuple[str, ...]


def units(arch: Mapping[str, Any]) -> list[Unit]:
    """The prunable widths in network order. Pruning never changes the names of units."""
    network = _Prunable.of(arch)
    return [Unit(name, network.widths[name], layers) for name, layers in network.found.units.items()]


PLAIN_PARTS = ("branch", "shortcut", "layers")  # of names that only say where a layer is


def label(arch: Mapping[str, Any], unit_name: str) -> str:
    """A unit's name for people: its own where it has words, else the kind and the number of its layer."""
    members = [_label(arch, member) for member in unit_name.split(JOINT)]
    return f" {JOINT} ".join(members)


def labels(networks: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The labels of all units of these networks, which were pruned from one: numbers are those of the one with most
    layers. It is the start network, if it is among them."""
    start = max(networks, key=lambda arch: len(arch["layers"]))
    return {name: label(start, name) for name in dict.fromkeys(unit.name for arch in networks for unit in units(arch))}


def _label(arch: Mapping[str, Any], name: str) -> str:
    prefix, first = ("without ", name.removeprefix("without ")) if name.startswith("without ") else ("", name)
    first, joint, last = first.partition(" to ")
    layers = {one: layer for one, layer in read(arch).layers.items() if isinstance(layer, (Convolution, Linear))}
    owner = first.split("#")[0]
    if joint:  # a block: the layers from the first to the last
        every = list(read(arch).layers)
        within = [one for one in every[every.index(first) : every.index(last) + 1] if one in layers]
        return prefix + " to ".join(dict.fromkeys(_label(arch, one) for one in (within[0], within[-1])))
    parts = [part for part in owner.split(".") if not part.isdecimal() and part not in PLAIN_PARTS]
    if parts or owner not in layers:
        return prefix + first
    kinds = {one: _kind(layer) for one, layer in layers.items()}
    number = [one for one, kind in kinds.items() if kind == kinds[owner]].index(owner) + 1
    return f"{prefix}{kinds[owner]} {number}"


def _kind(layer: Convolution | Linear) -> str:
    if isinstance(layer, Linear):
        return "linear"
    return "pointwise" if tuple(layer.kernel) == (1, 1) else "conv"


def merged(units: Sequence[Unit], groups: Sequence[Sequence[str]], shortened: bool = False) -> list[Unit]:
    """Units with each of the user's groups merged into one unit, at the position of its first member.

    An item of a group is the name of a unit, of a layer or of a module that contains layers; it selects every unit with
    a layer there. Members are pruned by the same fraction. The width of the group is that of its widest member; if that
    keeps k of W filters, a member of width w keeps w k / W, rounded up. Where layers have been left out (`shortened`)
    an item may select none.
    """
    group_of: dict[str, int] = {}
    for number, items in enumerate(groups):
        for item in items:
            for unit in _matching(item, units, shortened):
                if group_of.setdefault(unit.name, number) != number:
                    raise ArchitectureError(
                        f"unit {unit.name!r} is in two groups, in the second through {item!r}: merge the groups",
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
    """The description with `keep` filters in this unit. Unchanged parts are shared with `arch`."""
    network = _Prunable.of(arch)
    return network.described(_targets(network.widths, unit_name, keep))


def prune(arch: Mapping[str, Any], weights: Tensors, unit_name: str, keep: int) -> tuple[dict[str, Any], Tensors]:
    """The description and weights with the `keep` filters of largest L2 norm in this unit, in their original order.

    Ties: the later filters are removed.
    """
    network = _Prunable.of(arch)
    targets = _targets(network.widths, unit_name, keep)
    strongest = {
        unit: np.argsort(-network.norms(weights, unit), kind="stable")[:width] for unit, width in targets.items()
    }
    chosen = {unit: np.sort(filters) for unit, filters in strongest.items()}
    return network.described(targets), network.cut(weights, chosen)


def filter_norms(arch: Mapping[str, Any], weights: Tensors, unit_name: str) -> Array:
    """The L2 norm of each filter of a unit, over the weights (not biases) of all layers that produce its channels.

    Depthwise convolutions and norms that follow those layers do not count.
    """
    network = _Prunable.of(arch)
    if len(_members(network.widths, unit_name)) > 1:
        raise ArchitectureError(f"{unit_name!r} is a group of units: give one of them", code="several-units")
    return network.norms(weights, unit_name)


def _matching(item: str, units: Sequence[Unit], shortened: bool) -> list[Unit]:
    matching = [unit for unit in units if unit.name == item]
    if not matching:
        matching = [unit for unit in units if any(f"{name}.".startswith(f"{item}.") for name in unit.layers)]
    if not matching and not shortened:
        known = [unit.name for unit in units]
        raise ArchitectureError(f"group: no prunable layer {item!r}; {nearest(item, known)}", code="unknown-unit")
    return matching


def _members(widths: Mapping[str, int], name: str) -> list[str]:
    members = [name] if name in widths else name.split(JOINT)
    for member in members:
        if member not in widths:
            raise ArchitectureError(f"unknown unit {member!r}; {nearest(member, widths)}", code="unknown-unit")
    return members


def _targets(widths: Mapping[str, int], name: str, keep: int) -> dict[str, int]:
    """The number of filters to retain in each unit of this name."""
    members = _members(widths, name)
    widest = max(widths[member] for member in members)
    if isinstance(keep, bool) or not 1 <= keep <= widest:
        raise ArchitectureError(
            f"unit {name!r} cannot keep {keep} filters: give 1 to {widest}", code="width-out-of-range"
        )
    return {member: -(-widths[member] * keep // widest) for member in members}


@dataclass(frozen=True)
class _Prunable:
    """A network with its couplings and the number of filters of each unit."""

    arch: Mapping[str, Any]
    layers: Mapping[str, LayerDescription]
    found: Couplings
    widths: Mapping[str, int]

    @classmethod
    def of(cls, arch: Mapping[str, Any]) -> _Prunable:
        plan = read(arch)
        return cls(arch, plan.layers, *couplings(plan))

    def described(self, target: Mapping[str, int]) -> dict[str, Any]:
        """The description with these widths; unchanged parts are shared."""
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
        """The weights with only the chosen filters of these units, in the given order."""
        retained = {unit: np.arange(width) for unit, width in self.widths.items()} | dict(chosen)
        changed: dict[str, Array] = {}
        for name in self._touched(chosen):
            changed |= self._cut_layer(name, weights, retained)
        return weights.replaced(changed)

    def norms(self, weights: Tensors, unit: str) -> Array:
        """The L2 norm of each filter of a unit, over all layers that produce its channels."""
        width = self.widths[unit]
        squares = np.zeros(width)
        for name in self.found.units[unit]:
            weight = weights[f"{name}.weight"]
            own = np.square(weight.reshape(len(weight), -1), dtype=np.float64).sum(1)
            for start, segment, stop in _stretches(self.found.axes[name, "out"], self.widths):
                if segment.unit == unit:
                    squares += own[start:stop].reshape(width, segment.times).sum(1)
                elif width == 1 and segment.unit is None:  # its positions count as fixed: see `Couplings`
                    squares += own[start:stop].sum()
        norms: Array = np.sqrt(squares)
        return norms

    def _touched(self, units: Mapping[str, Any]) -> list[str]:
        """The layers that have positions of these units."""
        names = [name for (name, _), axis in self.found.axes.items() if any(part.unit in units for part in axis)]
        return list(dict.fromkeys(names))

    def _cut_layer(self, name: str, weights: Tensors, retained: Mapping[str, Array]) -> dict[str, Array]:
        layer = self.layers[name]
        out = _places(self.found.axes[name, "out"], self.widths, retained)
        cut: dict[str, Array] = {}
        for parameter in (f"{name}.weight", f"{name}.bias"):
            if parameter in weights:
                cut[parameter] = weights[parameter][out]
        if isinstance(layer, (Convolution, Linear)):
            places = _places(self.found.axes[name, "in"], self.widths, retained)
            groups = layer.groups if isinstance(layer, Convolution) else 1
            # A filter reads only the inputs of its group, and every group loses the same ones.
            cut[f"{name}.weight"] = cut[f"{name}.weight"][:, places[: len(places) // groups]]
        return cut


def _stretches(axis: Sequence[Segment], widths: Mapping[str, int]) -> Iterator[tuple[int, Segment, int]]:
    """Start and end of each segment of a side."""
    start = 0
    for segment in axis:
        stop = start + segment.times * (widths[segment.unit] if segment.unit else 1)
        yield start, segment, stop
        start = stop


def _places(axis: Sequence[Segment], widths: Mapping[str, int], retained: Mapping[str, Array]) -> Array:
    """The positions of a side that are retained."""
    parts = []
    for start, segment, stop in _stretches(axis, widths):
        if segment.unit is None:
            parts.append(np.arange(start, stop))
        else:
            parts.append(start + (retained[segment.unit][:, None] * segment.times + np.arange(segment.times)).ravel())
    return np.concatenate(parts)


HALVINGS = 20  # bisection steps: a millionth is finer than any change of width


def scaled(arch: dict[str, Any], factor: float) -> dict[str, Any]:
    """The network with all widths multiplied by `factor` and rounded, at least one filter each."""
    if not 0 < factor <= 1:
        raise ArchitectureError(
            f"width multiplier {factor:g}: give a factor above 0 and at most 1, such as 0.5",
            code="multiplier-out-of-range",
        )
    return with_widths(arch, {unit.name: max(1, round(unit.width * factor)) for unit in units(arch)})


def with_widths(arch: dict[str, Any], widths: Mapping[str, int]) -> dict[str, Any]:
    """The network with these numbers of filters in its units."""
    for name, width in widths.items():
        arch = narrowed(arch, name, width)
    return arch


def scaled_within(arch: dict[str, Any], macs: int) -> dict[str, Any]:
    """The network with all widths multiplied by the largest factor that takes at most this many MACs, and then as wide
    as these allow.

    One factor is coarse: layers of the same width get their next filter together. So what it leaves of the MACs is
    spent filter by filter, each time in the unit that has the smallest share of its filters among those that can grow.
    """
    if cost(arch).macs <= macs:
        return arch
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cost(scaled(arch, middle)).macs <= macs else (low, middle)
    if low == 0.0:
        raise ArchitectureError(
            f"no width multiplier reaches {macs:,} MACs: one filter per layer already needs more; raise the budget",
            code="budget-too-small",
        )
    whole = {unit.name: unit.width for unit in units(arch)}
    found = {unit.name: unit.width for unit in units(scaled(arch, low))}
    growing = list(whole)
    while growing:
        name = min(growing, key=lambda unit: found[unit] / whole[unit])
        wider = {**found, name: found[name] + 1}
        if wider[name] <= whole[name] and cost(with_widths(arch, wider)).macs <= macs:
            found = wider
        else:
            growing.remove(name)  # the others only grow, so it will not fit later either
    return with_widths(arch, found)


def pruned_to(arch: dict[str, Any], weights: Tensors, wanted: dict[str, Any]) -> Tensors | None:
    """The weights of `arch` pruned by L2 norm, unit by unit, to the widths of `wanted`.

    None if `wanted` is not a narrower version of the same network.
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
