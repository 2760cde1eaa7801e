"""Descriptions from outside: any fault is reported in one line before anything is built."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import ArchitectureError
from atoll.spaces import build, cost, skeleton
from atoll.spaces.cost import measured_cost
from atoll.spaces.pruned.plan import read
from atoll.spaces.pruned.space import describe
from made_modules import CLASSES, SHAPE, Grouped, Joined, batch
from refusals import refused

GOOD = describe(Joined(), SHAPE, CLASSES)
PROGRAM = GOOD["program"]
LAST = len(PROGRAM) - 1

Change = Callable[[dict[str, Any]], Any]


def put(*path: Any) -> Change:
    """Sets the value at the end of a path."""
    *way, key, value = path

    def change(arch: dict[str, Any]) -> None:
        owner: Any = arch
        for step in way:
            owner = owner[step]
        owner[key] = value

    return change


BAD: list[tuple[str, list[str], Change]] = [
    ("unreadable-architecture", ["program.0", "'conv'", "average_pool"], put("program", 0, "op", "conv")),
    (
        "unreadable-architecture",
        ["layers.left", "'transposed'", "convolution"],
        put("layers", "left", "kind", "transposed"),
    ),
    ("value-not-computed", ["node 4", "value 999"], put("program", 3, "of", [999])),
    ("value-not-computed", ["node 4", "value 4"], put("program", 3, "of", [4])),
    ("value-not-computed", ["node 4", "value 5"], put("program", 3, "of", [5])),
    ("unreadable-architecture", ["program.3", "-1"], put("program", 3, "of", [-1])),
    ("unreadable-architecture", ["program.3", "'1'"], put("program", 3, "of", ["1"])),
    ("unreadable-architecture", ["program.3", "True"], put("program", 3, "of", [True])),
    ("unknown-layer", ["'nowhere'"], put("program", 0, "name", "nowhere")),
    ("unused-layer", ["'idle'"], put("layers", "idle", {"kind": "linear", "inputs": 1, "outputs": 1})),
    ("unused-value", ["node 21"], lambda arch: arch["program"].insert(0, {"op": "relu", "of": [0]})),
    ("shape-mismatch", ["'left'", "9 channels", "6"], put("layers", "left", "inputs", 9)),
    ("shape-mismatch", ["'stem.1'", "6 channels", "7"], put("layers", "stem.0", "outputs", 7)),
    ("unreadable-architecture", ["layers.left", "outputs", "0"], put("layers", "left", "outputs", 0)),
    ("unreadable-architecture", ["layers.left", "outputs", "-4"], put("layers", "left", "outputs", -4)),
    ("unreadable-architecture", ["layers.left", "outputs", "1000000000000"], put("layers", "left", "outputs", 10**12)),
    ("unreadable-architecture", ["layers.left", "outputs", "5.0"], put("layers", "left", "outputs", 5.0)),
    ("unreadable-architecture", ["layers.left", "outputs", "'5'"], put("layers", "left", "outputs", "5")),
    ("unreadable-architecture", ["layers.left", "kernel", "1000000"], put("layers", "left", "kernel", [10**6, 3])),
    ("window-too-large", ["'left'", "99x3", "8x8"], put("layers", "left", "kernel", [99, 3])),
    ("indivisible-groups", ["'left'", "4 groups"], put("layers", "left", "groups", 4)),
    ("unreadable-architecture", ["layers.left", "kernel"], put("layers", "left", "kernel", [3])),
    ("unreadable-architecture", ["layers.left", "code"], put("layers", "left", "code", "import os")),
    ("unreadable-architecture", ["surprise"], put("surprise", 1)),
    ("unreadable-architecture", ["program"], lambda arch: arch.pop("program")),
    ("unreadable-architecture", ["layers.left", "outputs"], lambda arch: arch["layers"]["left"].pop("outputs")),
    ("unreadable-architecture", ["program"], put("program", [])),
    ("unreadable-architecture", ["layers"], put("layers", [])),
    ("invalid-input-shape", ["[3, 8]"], put("input", [3, 8])),
    ("unreadable-architecture", ["input"], put("input", [0])),
    ("unreadable-architecture", ["input", "1000000000"], put("input", [3, 8, 10**9])),
    ("sample-too-large", ["node 1"], put("input", [3, 2**20, 2**20])),
    ("output-shape-mismatch", ["[5]", "6 classes"], put("classes", 6)),
    (
        "network-too-large",
        ["parameters"],
        put("layers", "answer", {"kind": "linear", "inputs": 2**20, "outputs": 2**20}),
    ),
    ("invalid-layer-name", ["'a..b'"], lambda arch: renamed(arch, "left", "a..b")),
    ("nested-layers", ["'stem.0'"], lambda arch: renamed(arch, "left", "stem.0.inner")),
    ("reserved-layer-name", ["'forward'"], lambda arch: renamed(arch, "left", "forward")),
]


def renamed(arch: dict[str, Any], old: str, new: str) -> None:
    arch["layers"][new] = arch["layers"].pop(old)
    for node in arch["program"]:
        if node.get("name") == old:
            node["name"] = new


@pytest.mark.parametrize(("code", "named", "change"), BAD)
def test_a_bad_description_is_refused_in_one_line(code: str, named: list[str], change: Change) -> None:
    arch = copy.deepcopy(GOOD)
    change(arch)
    with refused(ArchitectureError, code, *named) as caught:
        skeleton(arch)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_good_one_is_good() -> None:
    assert cost(copy.deepcopy(GOOD)).macs > 0


PLACES = [("program", number) for number in range(len(PROGRAM))] + [("layers", name) for name in GOOD["layers"]]
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 20),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 9), max_size=3),
)


@given(place=st.sampled_from(PLACES), data=st.data())
def test_junk_in_any_field_is_refused_or_harmless(place: tuple[str, Any], data: st.DataObject) -> None:
    """Never a crash, and what is let in can be run: forward gives what the description promises."""
    arch = copy.deepcopy(GOOD)
    part = arch[place[0]][place[1]]
    part[data.draw(st.sampled_from([*part, "groups", "padding"]))] = data.draw(JUNK)
    try:
        module = build(arch)
    except ArchitectureError as problem:
        assert "\n" not in str(problem)
        return
    assert module(batch(3)).shape == (3, CLASSES)
    assert cost(arch) == measured_cost(skeleton(arch), SHAPE)


POOLS = st.fixed_dictionaries(
    {
        "op": st.sampled_from(["max_pool", "average_pool"]),
        "kernel": st.tuples(st.integers(1, 5), st.integers(1, 5)).map(list),
        "stride": st.tuples(st.integers(1, 4), st.integers(1, 4)).map(list),
        "padding": st.tuples(st.integers(0, 2), st.integers(0, 2)).map(list),
        "round_up": st.booleans(),
    }
)


@given(pool=POOLS, height=st.integers(1, 12), width=st.integers(1, 12))
def test_windows_are_counted_as_torch_counts_them(pool: dict[str, Any], height: int, width: int) -> None:
    arch = {
        "space": "widths",
        "input": [2, height, width],
        "classes": 2,
        "layers": {},
        "program": [{**pool, "of": [0]}, {"op": "mean", "of": [1]}],
    }
    kernel, stride, padding = pool["kernel"], pool["stride"], pool["padding"]
    function = torch.nn.functional.max_pool2d if pool["op"] == "max_pool" else torch.nn.functional.avg_pool2d
    try:
        wanted = function(torch.ones(1, 2, height, width), kernel, stride, padding, ceil_mode=pool["round_up"]).shape
    except RuntimeError:
        with pytest.raises(ArchitectureError):
            build(arch)
        return
    assert read(arch).shapes[1] == tuple(wanted[1:])


def test_a_description_survives_json_with_every_default_written_out() -> None:
    arch = json.loads(json.dumps(describe(Grouped(), SHAPE, CLASSES)))
    for layer in arch["layers"].values():
        layer.setdefault("bias", True) if layer["kind"] != "batch_norm" else layer.setdefault("epsilon", 1e-5)
    assert cost(arch) == cost(describe(Grouped(), SHAPE, CLASSES))
