"""Which layers must be pruned together, found by following every channel through the network's program.

Each channel position on each side of a layer has a number. Values of the program carry the numbers of their channels: a
layer couples the value it reads with its input side, a sum couples its operands, a concatenation concatenates the
numbers, and flattening an image repeats each number. In grouped convolutions and norms, every group loses the same
positions. torch-pruning, which derives couplings from the autograd graph, finds the same ones (see the tests).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from atoll.core.messages import Array
from atoll.errors import ArchitectureError
from atoll.spaces.pruned.layers import Convolution, GroupNormalisation, LayerDescription, Linear
from atoll.spaces.pruned.operations import Concatenate, Flatten, LayerCall
from atoll.spaces.pruned.plan import NetworkPlan

Side = tuple[str, str]  # layer name and "in" or "out"; layers with a single width have only "out"
INPUT: Side = ("", "in")
OUTPUT: Side = ("", "out")

_known_couplings: dict[str, list[Couplings]] = {}


@dataclass(frozen=True)
class Segment:
    """A range of one side of a layer: `times` positions per filter of `unit`, or fixed positions without a unit."""

    unit: str | None
    times: int


@dataclass(frozen=True)
class Couplings:
    """`units`: the layers whose filters form each unit, in network order. `axes`: the segments of each side.

    A unit with a single filter cannot be pruned; its positions count as fixed.
    """

    units: Mapping[str, tuple[str, ...]]
    axes: Mapping[Side, tuple[Segment, ...]]

    def widths(self, layers: Mapping[str, LayerDescription]) -> dict[str, int] | None:
        """The width of each unit in a network with these couplings; None if its couplings differ."""
        found: dict[str, int] = {}
        remaining = dict(self.axes)
        while remaining:
            later = {}
            for (name, side), axis in remaining.items():
                rest = size(layers[name], side) - sum(
                    found.get(s.unit, 0) * s.times if s.unit else s.times for s in axis
                )
                unknown = sorted({s.unit for s in axis if s.unit and s.unit not in found})
                if len(unknown) > 1:
                    later[name, side] = axis
                elif unknown:
                    width, over = divmod(rest, sum(s.times for s in axis if s.unit == unknown[0]))
                    if over or width < 1:
                        return None
                    found[unknown[0]] = width
                elif rest:
                    return None
            if len(later) == len(remaining):
                return None
            remaining = later
        return {unit: found.get(unit, 1) for unit in self.units}


def size(layer: LayerDescription, side: str) -> int:
    """The width of one side of a layer."""
    if isinstance(layer, (Convolution, Linear)):
        return layer.inputs if side == "in" else layer.outputs
    return layer.channels


def sides(name: str, layer: LayerDescription) -> list[Side]:
    """The sides of a layer that have a separate width."""
    return [(name, "in"), (name, "out")] if isinstance(layer, (Convolution, Linear)) else [(name, "out")]


def couplings(plan: NetworkPlan) -> tuple[Couplings, dict[str, int]]:
    """The couplings of a network, and the width of each unit.

    Networks that differ only in widths usually have the same couplings. Couplings are cached and checked against the
    widths before reuse, so the result never depends on earlier calls.
    """
    cached = _known_couplings.setdefault(_topology(plan), [])
    for known in cached:
        widths = known.widths(plan.layers)
        if widths is not None:
            return known, widths
    fresh = _analysed(plan)
    widths = fresh.widths(plan.layers)
    if widths is None:
        raise ArchitectureError(
            "the widths of this network depend on each other, and pruning does not support this form",
            code="unsupported-coupling",
        )
    cached.append(fresh)
    return fresh, widths


def _topology(plan: NetworkPlan) -> str:
    """The description without widths, as the key of the cache."""
    layers = {name: layer.model_dump(exclude={"inputs", "outputs", "channels"}) for name, layer in plan.layers.items()}
    return json.dumps([plan.input, plan.classes, layers, [node.model_dump() for node in plan.program]], sort_keys=True)


def _analysed(plan: NetworkPlan) -> Couplings:
    """The units of a network, and the segments of each side of each layer."""
    labels = channel_labels(plan)
    fixed = {int(label) for end in (INPUT, OUTPUT) for label in labels[end]}
    filters = _filters(plan, labels, fixed)
    units: dict[str, tuple[str, ...]] = {}
    order: dict[str, list[int]] = {}
    for members in filters:
        owners = [name for name, layer in plan.layers.items() if _produces(layer) and members[0] in labels[name, "out"]]
        same = sum(unit == owners[0] or unit.startswith(f"{owners[0]}#") for unit in units)
        unit = f"{owners[0]}#{same + 1}" if same else owners[0]
        units[unit] = tuple(owners)
        order[unit] = members
    unit_of = {label: unit for unit, members in order.items() for label in members}
    axes = {side: tuple(_segments(labels[side], unit_of, order, side)) for side in labels if side[0]}
    return Couplings(units, axes)


def _produces(layer: LayerDescription) -> bool:
    """Whether this layer produces channels rather than passing its input channels on."""
    return isinstance(layer, (Convolution, Linear))


def _filters(plan: NetworkPlan, labels: dict[Side, Array], fixed: set[int]) -> list[list[int]]:
    """Free labels that occur equally often on the same sides form the filters of one unit, in network order."""
    occurrences: dict[int, list[tuple[Side, int]]] = {}
    for side, axis in labels.items():
        for label, count in zip(*np.unique(axis, return_counts=True), strict=True):
            occurrences.setdefault(int(label), []).append((side, int(count)))
    grouped: dict[tuple[tuple[Side, int], ...], list[int]] = {}
    seen = set(fixed)
    for name, layer in plan.layers.items():
        for label in map(int, labels[name, "out"]) if _produces(layer) else ():
            if label not in seen:
                seen.add(label)
                grouped.setdefault(tuple(occurrences[label]), []).append(label)
    return list(grouped.values())


def _segments(axis: Array, unit_of: dict[int, str], order: dict[str, list[int]], side: Side) -> Iterator[Segment]:
    place = 0
    while place < len(axis):
        unit = unit_of.get(int(axis[place]))
        run = sum(1 for _ in next(groupby(axis[place:]))[1])
        members = order.get(unit, []) if unit else []
        if unit is None or len(members) == 1:
            yield Segment(None, run)
            place += run
            continue
        stretch = axis[place : place + run * len(members)]
        if not np.array_equal(stretch, np.repeat(members, run)):
            raise ArchitectureError(
                f"layer {side[0]!r} mixes the channels of {unit!r}, and pruning does not support this form",
                code="unsupported-coupling",
            )
        yield Segment(unit, run)
        place += len(stretch)


def channel_labels(plan: NetworkPlan) -> dict[Side, Array]:
    """One label per position of each side; positions with the same label must be retained or removed together."""
    widths = {INPUT: plan.input[0], OUTPUT: plan.classes}
    for name, layer in plan.layers.items():
        widths |= {side: size(layer, side[1]) for side in sides(name, layer)}
    *ends, total = np.cumsum(list(widths.values()), dtype=np.int64).tolist()
    places = dict(zip(widths, np.split(np.arange(total), ends), strict=True))
    pairs = [np.concatenate(both) for both in zip(*_coupled(plan, places), strict=True)]
    graph = coo_array((np.ones(len(pairs[0])), pairs), shape=(total, total))
    _, labels = connected_components(graph, directed=False)
    return {side: labels[numbers] for side, numbers in places.items()}


def _coupled(plan: NetworkPlan, places: Mapping[Side, Array]) -> Iterator[tuple[Array, Array]]:
    """Pairs of coupled positions. Each value of the program is represented by the positions its channels come from."""
    values = [places[INPUT]]
    for shape, node in zip(plan.shapes[1:], plan.program, strict=True):
        first, *others = (values[value] for value in node.of)
        match node:
            case LayerCall(name=name):
                yield first, places[sides(name, plan.layers[name])[0]]
                values.append(places[name, "out"])
            case Concatenate():
                values.append(np.concatenate([first, *others]))
            case Flatten():
                values.append(np.repeat(first, shape[0] // len(first)))
            case _:  # elementwise, or over height and width
                yield from ((first, other) for other in others)
                values.append(first)
    yield values[-1], places[OUTPUT]
    for name, layer in plan.layers.items():
        if isinstance(layer, (Convolution, GroupNormalisation)) and isinstance(layer.groups, int):
            for side in sides(name, layer):
                groups = places[side].reshape(layer.groups, -1)
                yield np.broadcast_to(groups[0], groups.shape).ravel(), groups.ravel()
