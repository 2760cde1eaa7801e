"""Which layers must shrink together, found by torch-pruning 1.6.1.

Only the library's dependency graph is used, and only here, on the server: clients get descriptions. It reads couplings
off autograd's graph and infers widths by searching that graph, which goes wrong behind concatenations, flattened images
and the network's input. So it is shown the network with a batch norm of known width wherever a width is not plain to
see. It leaves the groups of convolutions and norms to its users; here, what is removed goes from every group alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from atoll.errors import ArchitectureError
from atoll.messages import Array
from atoll.spaces.pruning_graph import Couplings, Segment, Side, sides, size
from atoll.spaces.widths_fields import Shape
from atoll.spaces.widths_layers import Convolution, Depthwise, GroupNormalisation, Known, Linear
from atoll.spaces.widths_operations import Apply, Concatenate
from atoll.spaces.widths_plan import Plan

INPUT: Side = ("", "in")
ANSWER: Side = ("", "out")


def analysed(plan: Plan) -> Couplings:
    """The units of a network, and what each side of each layer consists of."""
    labels = _labels(plan)
    fixed = {int(label) for end in (INPUT, ANSWER) for label in labels[end]}
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


def _produces(layer: Known) -> bool:
    """Does this layer make channels, or pass on what it gets?"""
    return isinstance(layer, (Convolution, Linear))


def _filters(plan: Plan, labels: dict[Side, Array], fixed: set[int]) -> list[list[int]]:
    """Free labels that occur at the same sides equally often: the filters of one unit, in the network's order."""
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
    if len(seen) < len(occurrences):
        raise ArchitectureError("a layer reads channels that no layer makes: pruning cannot follow this network")
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
                f"layer {side[0]!r} mixes the channels of {unit!r} in a way that pruning cannot follow"
            )
        yield Segment(unit, run)
        place += len(stretch)


def _labels(plan: Plan) -> dict[Side, Array]:
    """For each side one label a place; places with the same label must be kept or removed together."""
    spans: dict[Side, tuple[int, int]] = {}
    total = 0
    widths = {INPUT: plan.input[0], ANSWER: plan.classes}
    for name, layer in plan.layers.items():
        widths |= {side: size(layer, side[1]) for side in sides(name, layer)}
    for side, width in widths.items():
        spans[side] = (total, total + width)
        total += width
    ends = [np.concatenate(both) for both in zip(*_edges(plan, spans), strict=True)]
    _, labels = connected_components(coo_array((np.ones(len(ends[0])), ends), shape=(total, total)), directed=False)
    return {side: labels[start:stop] for side, (start, stop) in spans.items()}


def _edges(plan: Plan, spans: dict[Side, tuple[int, int]]) -> Iterator[tuple[Array, Array]]:
    """Pairs of places that are coupled."""
    yield np.zeros(0, np.int64), np.zeros(0, np.int64)
    yield from _library_edges(plan, spans)
    for name, layer in plan.layers.items():
        groups = layer.groups if isinstance(layer, (Convolution, GroupNormalisation)) else 1
        if not isinstance(groups, int) or groups == 1:
            continue
        for side in sides(name, layer):
            places = np.arange(*spans[side]).reshape(groups, -1)
            yield np.broadcast_to(places[0], places.shape).ravel(), places.ravel()


def _library_edges(plan: Plan, spans: dict[Side, tuple[int, int]]) -> Iterator[tuple[Array, Array]]:
    import torch_pruning

    with torch.device("meta"), torch.enable_grad():
        network = _Marked(plan)
        batch = torch.empty((2, *plan.input), requires_grad=True)
        graph = torch_pruning.DependencyGraph().build_dependency(network, (batch,), verbose=False)
    side_of = _Sides(plan, network)
    for module in graph.module2node:
        root = side_of(module, "out")
        if root is None:
            continue
        start, stop = spans[root]
        handler = graph.get_pruner_of_module(module).prune_out_channels
        for item in graph.get_pruning_group(module, handler, list(range(stop - start))):
            direction = "out" if graph.is_out_channel_pruning_fn(item.dep.handler) else "in"
            side = side_of(item.dep.target.module, direction)
            if side is not None:
                yield start + np.array(item.root_idxs, np.int64), spans[side][0] + np.array(item.idxs, np.int64)


class _Sides:
    """From the library's modules to the sides of the plan's layers; None for a batch norm that only marks a width."""

    def __init__(self, plan: Plan, network: _Marked) -> None:
        self.layers = plan.layers
        self.names = {module: name for name, module in zip(plan.layers, network.layers, strict=True)}
        self.ends = {network.first: INPUT, network.last: ANSWER}

    def __call__(self, module: Any, direction: str) -> Side | None:
        if not isinstance(module, nn.Module) or module not in self.names:
            return self.ends.get(module) if isinstance(module, nn.Module) else None
        name = self.names[module]
        return (name, direction if _produces(self.layers[name]) else "out")


class _Marked(nn.Module):
    """The plan as the library sees it: plain layers, and a batch norm of known width at every other node."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.plan = plan
        self.place = {name: number for number, name in enumerate(plan.layers)}
        ranks = {name: before for name, _, before, _ in plan.uses()}
        self.layers = nn.ModuleList(_seen(layer, ranks[name]) for name, layer in plan.layers.items())
        self.first = _mark(plan.shapes[0])
        self.last = _mark(plan.shapes[-1])
        self.marks = nn.ModuleList(_mark(shape) for shape in plan.shapes[1:])
        joined = [plan.shapes[value] for node in plan.program if isinstance(node, Concatenate) for value in node.of]
        self.joined = nn.ModuleList(_mark(shape) for shape in joined)

    def forward(self, x: Tensor) -> Tensor:
        values = [self.first(x)]
        joined = iter(self.joined)
        for number, node in enumerate(self.plan.program):
            read = [values[value] for value in node.of]
            if isinstance(node, Apply):
                values.append(self.layers[self.place[node.name]](*read))
                continue
            if isinstance(node, Concatenate):  # one for each, or the same value read twice would be one input
                read = [next(joined)(value) for value in read]
            values.append(self.marks[number](node.function()(*read)))
        answer: Tensor = self.last(values[-1])
        return answer


def _seen(layer: Known, shape: Shape) -> nn.Module:
    """Without groups: a convolution with as many groups as outputs would be taken for a depthwise one."""
    if isinstance(layer, Convolution):
        return layer.model_copy(update={"groups": 1}).module()
    if isinstance(layer, (Linear, Depthwise)):
        return layer.module()
    return _mark(shape)


def _mark(shape: Sequence[int]) -> nn.Module:
    kind = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
    return kind(shape[0], affine=False, track_running_stats=False)
