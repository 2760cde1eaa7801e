"""Couplings of usual networks and of random ones: channels followed through the program, against torch-pruning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor, nn

from atoll.core.messages import Array
from atoll.spaces import build, initial
from atoll.spaces.pruned.couplings import INPUT, OUTPUT, Side, channel_labels, sides
from atoll.spaces.pruned.fields import Shape
from atoll.spaces.pruned.layers import Convolution, Depthwise, GroupNormalisation, LayerDescription, Linear
from atoll.spaces.pruned.operations import Concatenate, LayerCall
from atoll.spaces.pruned.plan import NetworkPlan, read
from atoll.spaces.pruned.pruning import Unit, prune, units
from atoll.spaces.pruned.space import describe, from_fixed
from atoll.training.networks import load
from made_modules import CLASSES, SHAPE, Grouped, GroupNormed, Joined, Repeated
from pruning_oracle import dependency_graph

SIDE = 4  # of every image: all convolutions are 1x1


def by_torch_pruning(plan: NetworkPlan) -> dict[Side, Array]:
    """For each side one label a place, by the library's dependency graph. Groups are left to its users."""
    places: dict[Side, Array] = {}
    total = 0
    for side, labels in channel_labels(plan).items():
        places[side] = np.arange(total, total + len(labels))
        total += len(labels)
    pairs = list(coupled_by_torch_pruning(plan, places))
    for name, layer in plan.layers.items():
        groups = layer.groups if isinstance(layer, (Convolution, GroupNormalisation)) else 1
        for side in sides(name, layer) if isinstance(groups, int) else ():
            pairs += [(places[side][: len(part)], part) for part in np.split(places[side], groups)]
    ends = [np.concatenate(both) for both in zip(*pairs, strict=True)]
    _, labels = connected_components(coo_array((np.ones(len(ends[0])), ends), shape=(total, total)), directed=False)
    return {side: labels[numbers] for side, numbers in places.items()}


def coupled_by_torch_pruning(plan: NetworkPlan, places: dict[Side, Array]) -> Iterator[tuple[Array, Array]]:
    with torch.device("meta"), torch.enable_grad():
        network = Marked(plan)
        batch = torch.empty((2, *plan.input), requires_grad=True)
        graph = dependency_graph(network, batch)
    names = dict(zip(network.layers, plan.layers, strict=True))

    def side_of(module: Any, direction: str) -> Side | None:
        """None for a batch norm that only marks a width, and for what is no module."""
        if module not in names:
            return {network.first: INPUT, network.last: OUTPUT}.get(module)
        name = names[module]
        return (name, direction if isinstance(plan.layers[name], (Convolution, Linear)) else "out")

    for module in graph.module2node:
        root = side_of(module, "out")
        if root is None:
            continue
        handler = graph.get_pruner_of_module(module).prune_out_channels
        for item in graph.get_pruning_group(module, handler, list(range(len(places[root])))):
            direction = "out" if graph.is_out_channel_pruning_fn(item.dep.handler) else "in"
            side = side_of(item.dep.target.module, direction)
            if side is not None:
                yield places[root][item.root_idxs], places[side][item.idxs]


class Marked(nn.Module):
    """The plan as the library is shown it: plain layers, and a batch norm of known width at every other node.

    The library infers widths by searching autograd's graph, which goes wrong behind concatenations, flattened images
    and the network's input.
    """

    def __init__(self, plan: NetworkPlan) -> None:
        super().__init__()
        self.plan = plan
        self.place = {name: number for number, name in enumerate(plan.layers)}
        ranks = {name: before for name, _, before, _ in plan.uses()}
        self.layers = nn.ModuleList(seen(layer, ranks[name]) for name, layer in plan.layers.items())
        self.first = mark(plan.shapes[0])
        self.last = mark(plan.shapes[-1])
        self.marks = nn.ModuleList(mark(shape) for shape in plan.shapes[1:])
        joined = [plan.shapes[value] for node in plan.program if isinstance(node, Concatenate) for value in node.of]
        self.joined = nn.ModuleList(mark(shape) for shape in joined)

    def forward(self, x: Tensor) -> Tensor:
        values = [self.first(x)]
        joined = iter(self.joined)
        for number, node in enumerate(self.plan.program):
            read = [values[value] for value in node.of]
            if isinstance(node, LayerCall):
                values.append(self.layers[self.place[node.name]](*read))
                continue
            if isinstance(node, Concatenate):  # one for each, or the same value read twice would be one input
                read = [next(joined)(value) for value in read]
            values.append(self.marks[number](node.function()(*read)))
        answer: Tensor = self.last(values[-1])
        return answer


def seen(layer: LayerDescription, shape: Shape) -> nn.Module:
    """Without groups: a convolution with as many groups as outputs would be taken for a depthwise one."""
    if isinstance(layer, Convolution):
        return layer.model_copy(update={"groups": 1}).module()
    if isinstance(layer, (Linear, Depthwise)):
        return layer.module()
    return mark(shape)


def mark(shape: Sequence[int]) -> nn.Module:
    kind = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
    return kind(shape[0], affine=False, track_running_stats=False)


def assert_same_partition(one: dict[Side, Array], other: dict[Side, Array]) -> None:
    assert one.keys() == other.keys()
    pairs = {pair for side in one for pair in zip(one[side].tolist(), other[side].tolist(), strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


@st.composite
def networks(draw: st.DrawFn) -> dict[str, Any]:
    """Convolutions, norms, sums and concatenations in any order, then the image flattened or averaged, two layers."""
    layers: dict[str, dict[str, Any]] = {}
    program: list[dict[str, Any]] = []
    widths = [draw(st.integers(1, 3))]
    start = widths[0]

    def put(node: dict[str, Any], width: int) -> int:
        program.append(node)
        widths.append(width)
        return len(program)

    def layer(value: int, width: int, **settings: Any) -> int:
        layers[f"l{len(layers)}"] = settings
        return put({"op": "layer", "of": [value], "name": f"l{len(layers) - 1}"}, width)

    def convolution(value: int, width: int, groups: int = 1) -> int:
        both = {"inputs": widths[value], "outputs": width, "groups": groups}
        return layer(value, width, kind="convolution", kernel=[1, 1], **both)

    for _ in range(draw(st.integers(1, 7))):
        value = draw(st.integers(0, len(program)))
        other = draw(st.integers(0, len(program)))
        match draw(
            st.sampled_from(["plain", "grouped", "depthwise", "norm", "group_norm", "add", "concatenate", "relu"])
        ):
            case "plain":
                convolution(value, draw(st.sampled_from([1, 2, 4, 6])))
            case "grouped":
                convolution(value, 4, 2 if widths[value] % 2 == 0 else 1)
            case "depthwise":
                layer(value, widths[value], kind="depthwise", channels=widths[value], kernel=[1, 1])
            case "norm":
                layer(value, widths[value], kind="batch_norm", channels=widths[value], affine=True)
            case "group_norm":
                groups = draw(st.sampled_from([1, "each", 2 if widths[value] % 2 == 0 else 1]))
                layer(value, widths[value], kind="group_norm", channels=widths[value], groups=groups)
            case "add":
                fitting = other if widths[other] == widths[value] else convolution(other, widths[value])
                put({"op": "add", "of": [value, fitting]}, widths[value])
            case "concatenate":
                put({"op": "concatenate", "of": [value, other]}, widths[value] + widths[other])
            case _:
                put({"op": "relu", "of": [value]}, widths[value])
    read_values = {value for node in program for value in node["of"]}
    ends = [value for value in range(1, len(program) + 1) if value not in read_values]
    end = put({"op": "concatenate", "of": ends}, sum(widths[value] for value in ends))
    if draw(st.booleans()):
        end = put({"op": "flatten", "of": [end]}, widths[end] * SIDE * SIDE)
    else:
        end = put({"op": "mean", "of": [end]}, widths[end])
    hidden = layer(end, 3, kind="linear", inputs=widths[end], outputs=3)
    layer(hidden, 2, kind="linear", inputs=3, outputs=2)
    return {"space": "widths", "input": [start, SIDE, SIDE], "classes": 2, "layers": layers, "program": program}


class WideFirst(nn.Module):
    """A layer whose channels are added to those of two later layers side by side: two units that begin with it."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Conv2d(3, 7, 1)
        self.left, self.right = nn.Conv2d(7, 3, 1), nn.Conv2d(7, 4, 1)
        self.answer = nn.Linear(7, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.wide(x)
        return self.answer((x * torch.cat((self.left(x), self.right(x)), 1)).mean((2, 3)))


def fixed(model: str, shape: Sequence[int]) -> dict[str, Any]:
    return from_fixed({"space": "fixed", "model": model, "input": list(shape), "classes": CLASSES})


NETWORKS = {
    "mlp": fixed("mlp", [20]),
    **{model: fixed(model, [3, 32, 32]) for model in ("convnet", "mobilenet", "resnet18")},
    **{kind.__name__: describe(kind(), SHAPE, CLASSES) for kind in (Joined, Grouped, GroupNormed, Repeated, WideFirst)},
}


@pytest.mark.parametrize("name", NETWORKS)
def test_torch_pruning_finds_the_same_couplings(name: str) -> None:
    plan = read(NETWORKS[name])
    assert_same_partition(channel_labels(plan), by_torch_pruning(plan))


@settings(max_examples=20)
@given(networks())
def test_torch_pruning_finds_the_same_couplings_in_random_networks(arch: dict[str, Any]) -> None:
    plan = read(arch)
    assert_same_partition(channel_labels(plan), by_torch_pruning(plan))


def test_units_that_begin_with_the_same_layer_are_numbered() -> None:
    assert units(NETWORKS["WideFirst"]) == [
        Unit("wide", 3, ("wide", "left")),
        Unit("wide#2", 4, ("wide", "right")),
    ]


@settings(max_examples=15)
@given(networks(), st.data())
def test_such_networks_are_pruned_to_networks_that_run(arch: dict[str, Any], data: st.DataObject) -> None:
    weights = initial(arch, np.random.default_rng(0))
    names = [unit.name for unit in units(arch)]
    for unit in units(arch):
        arch, weights = prune(arch, weights, unit.name, data.draw(st.integers(1, unit.width)))
    assert [unit.name for unit in units(arch)] == names
    module = build(arch)
    load(module, weights)
    assert module(torch.ones(3, *arch["input"])).shape == (3, 2)
