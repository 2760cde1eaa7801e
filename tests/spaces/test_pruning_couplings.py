"""Couplings on networks nobody would draw: the library's answer against labels carried through the program by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.learning.networks import load
from atoll.messages import Array
from atoll.spaces import build, initial
from atoll.spaces.pruning import prune, units
from atoll.spaces.pruning_trace import ANSWER, INPUT, _labels
from atoll.spaces.widths_layers import Convolution, GroupNormalisation, Linear
from atoll.spaces.widths_operations import Apply
from atoll.spaces.widths_plan import Plan, read

SIDE = 4  # of every image: all convolutions are 1x1


def carried(plan: Plan) -> dict[tuple[str, str], Array]:
    """Each channel gets a number where it is made; the number goes with it, and sums make two numbers one."""
    parent: list[int] = []

    def fresh(count: int) -> Array:
        parent.extend(range(len(parent), len(parent) + count))
        return np.arange(len(parent) - count, len(parent))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    def join(one: Array, other: Array) -> None:
        assert len(one) == len(other)
        for a, b in zip(one.tolist(), other.tolist(), strict=True):
            parent[root(a)] = root(b)

    sides: dict[tuple[str, str], Array] = {INPUT: fresh(plan.input[0]), ANSWER: fresh(plan.classes)}
    values = [sides[INPUT]]
    for node in plan.program:
        axes = [values[value] for value in node.of]
        if isinstance(node, Apply):
            layer = plan.layers[node.name]
            if isinstance(layer, (Convolution, Linear)):
                join(sides.setdefault((node.name, "in"), axes[0]), axes[0])
                out = sides.setdefault((node.name, "out"), fresh(layer.outputs))
            else:
                out = sides.setdefault((node.name, "out"), axes[0])
                join(out, axes[0])
            groups = layer.groups if isinstance(layer, (Convolution, GroupNormalisation)) else 1
            for axis in (axes[0], out) if isinstance(groups, int) else ():
                for part in np.split(axis, groups):
                    join(part, axis[: len(part)])
            values.append(out)
        elif node.op == "concatenate":
            values.append(np.concatenate(axes))
        elif node.op == "flatten":
            shape = plan.shapes[node.of[0]]
            values.append(np.repeat(axes[0], int(np.prod(shape[1:], dtype=int))))
        else:
            for axis in axes[1:]:
                join(axes[0], axis)
            values.append(axes[0])
    join(values[-1], sides[ANSWER])
    return {side: np.array([root(number) for number in axis.tolist()]) for side, axis in sides.items()}


def same_partition(one: dict[tuple[str, str], Array], other: dict[tuple[str, str], Array]) -> bool:
    assert one.keys() == other.keys()
    pairs = {pair for side in one for pair in zip(one[side].tolist(), other[side].tolist(), strict=True)}
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})


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


@settings(max_examples=20)
@given(networks())
def test_the_library_and_labels_carried_by_hand_agree(arch: dict[str, Any]) -> None:
    plan = read(arch)
    assert same_partition(_labels(plan), carried(plan))


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
