"""Pruning: the pruned network is the whole one with those filters' outputs zeroed, and what torch-pruning makes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError
from atoll.spaces import build, cost, initial, skeleton
from atoll.spaces import fixed as fixed_space
from atoll.spaces.pruned.pruning import Unit, filter_norms, merged, narrowed, prune, units
from atoll.spaces.pruned.space import describe, from_fixed
from atoll.training.networks import load, network
from made_modules import CLASSES, SHAPE, Grouped, GroupNormed, Joined, Repeated, batch, weighted
from pruning_oracle import dependency_graph
from refusals import refused

CONVNET = {"space": "fixed", "model": "convnet", "input": [3, 16, 16], "classes": 5, "widths": [5, 4, 6, 3, 4, 7]}
MOBILENET = {"space": "fixed", "model": "mobilenet", "input": [3, 16, 16], "classes": 5, "widths": [4, 5, 6] + [3] * 11}
RESNET = {"space": "fixed", "model": "resnet18", "input": [3, 8, 8], "classes": 5, "widths": [4, 5, 6, 7]}

Block = tuple[str, int]  # a place in a module, and where the unit's channels begin there

# Found by hand: a unit, how many filters it keeps, the layers that make its channels, and the submodules whose outputs
# hold them where the next layers read.
ZEROED: list[tuple[Any, str, int, list[Block], list[Block]]] = [
    (CONVNET, "0.0", 3, [("0.0", 0)], [("0.2", 0)]),
    (CONVNET, "4.0", 1, [("4.0", 0)], [("4.2", 0)]),
    (CONVNET, "7.0", 4, [("7.0", 0)], [("7.2", 0)]),  # flattened before the last layer
    (MOBILENET, "0.0", 2, [("0.0", 0)], [("0.2", 0)]),
    (MOBILENET, "2.3", 4, [("2.3", 0)], [("2.5", 0)]),
    (MOBILENET, "13.3", 1, [("13.3", 0)], [("13.5", 0)]),
    (RESNET, "0.0", 2, [("0.0", 0), ("1.branch.1", 0), ("2.branch.1", 0)], [("0", 0), ("1", 0), ("2", 0)]),
    (RESNET, "3.branch.0.0", 3, [("3.branch.0.0", 0)], [("3.branch.0", 0)]),
    (RESNET, "7.branch.1", 5, [("7.branch.1", 0), ("7.shortcut.0", 0), ("8.branch.1", 0)], [("7", 0), ("8", 0)]),
    (Joined, "stem.0", 3, [("stem.0", 0), ("outer", 0)], [("stem", 0), ("summed", 0)]),
    (Joined, "inner", 1, [("inner", 0)], [("inner_norm", 0)]),
    (Joined, "left", 2, [("left", 0), ("wide", 0)], [("joined", 0)]),
    (Joined, "right", 3, [("right", 0), ("wide", 5)], [("joined", 5)]),  # behind the five of the left branch
    (Joined, "last", 6, [("last", 0)], [("last", 0)]),
    (Grouped, "first", 3, [("first", 0), ("first", 4), ("gate.3", 0), ("gate.3", 4)],
     [("gate.0", 0), ("gate.0", 4), ("gated", 0), ("gated", 4)]),  # two channels a filter: of either group one
    (Grouped, "gate.1", 2, [("gate.1", 0)], [("gate.2", 0)]),
    (Grouped, "grouped", 2, [("grouped", 0), ("grouped", 3)], [("act", 0), ("act", 3)]),
    (Grouped, "hidden", 3, [("hidden", 0)], [("hidden_act", 0)]),
]  # fmt: skip


def original(source: Any) -> nn.Module:
    """The torch module itself, in training mode: batch norm by the batch."""
    module = fixed_space.build(source) if isinstance(source, dict) else source()
    return weighted(module).train()


def described(source: Any) -> dict[str, Any]:
    return from_fixed(source) if isinstance(source, dict) else describe(original(source), SHAPE, CLASSES)


def weights_of(module: nn.Module) -> Tensors:
    return Tensors({name: parameter.detach().numpy().copy() for name, parameter in module.named_parameters()})


def run(arch: dict[str, Any], weights: Tensors, x: Tensor) -> Tensor:
    """As a client does: from text."""
    module = network(json.loads(json.dumps(arch)))
    load(module, weights)
    return module(x).detach()


def weakest(module: nn.Module, blocks: Sequence[Block], width: int, keep: int) -> list[int]:
    """The filters that go, by the definition."""
    squares = torch.zeros(width, dtype=torch.float64)
    for name, offset in blocks:
        weight = module.get_submodule(name).weight.detach().double()[offset : offset + width]
        squares += weight.flatten(1).square().sum(1)
    order = sorted(range(width), key=lambda index: (-float(squares[index]), index))
    return sorted(order[keep:])


def unit_of(arch: dict[str, Any], name: str) -> Unit:
    return next(unit for unit in units(arch) if unit.name == name)


@pytest.mark.parametrize(("source", "name", "keep", "made", "held"), ZEROED)
def test_pruned_equals_zeroed(source: Any, name: str, keep: int, made: list[Block], held: list[Block]) -> None:
    module, arch = original(source), described(source)
    unit = unit_of(arch, name)
    assert set(unit.layers) == {layer for layer, _ in made}
    gone = weakest(module, made, unit.width, keep)
    small, weights = prune(arch, weights_of(module), name, keep)
    x = batch(6, tuple(arch["input"]))
    untouched = module(x).detach()
    for place, offset in held:
        channels = [offset + index for index in gone]
        module.get_submodule(place).register_forward_hook(lambda _, __, out, channels=channels: zeroed(out, channels))
    wanted = module(x).detach()
    assert not torch.allclose(wanted, untouched, rtol=1e-2)
    torch.testing.assert_close(run(small, weights, x), wanted, rtol=1e-4, atol=1e-5)
    assert small == narrowed(arch, name, keep)
    assert cost(small).params == sum(array.size for array in weights.values()) < cost(arch).params


def zeroed(out: Tensor, channels: list[int]) -> Tensor:
    mask = torch.ones(out.shape[1])
    mask[channels] = 0
    return out * mask.reshape(1, -1, *[1] * (out.dim() - 2))


ORACLE = [
    *((CONVNET, name, keep) for name, keep in (("1.0", 2), ("7.0", 3))),
    *((MOBILENET, name, keep) for name, keep in (("0.0", 1), ("1.3", 3), ("13.3", 2))),
    *((RESNET, name, keep) for name, keep in (("0.0", 1), ("5.branch.1", 4), ("6.branch.0.0", 2))),
    *((Joined, name, keep) for name, keep in (("stem.0", 2), ("left", 3), ("right", 1), ("last", 3))),
    *((Grouped, name, keep) for name, keep in (("gate.1", 1), ("hidden", 4), ("grouped", 2), ("first", 3))),
    *((GroupNormed, name, keep) for name, keep in (("first", 2), ("second", 3), ("third", 1))),
]


@pytest.mark.parametrize(("source", "name", "keep"), ORACLE)
def test_torch_pruning_cuts_the_same(source: Any, name: str, keep: int) -> None:
    module, arch = original(source), described(source)
    weights = weights_of(module)
    small, kept_weights = prune(arch, weights, name, keep)
    # which filters went is read off the weights of the unit's first layer
    before, after = weights[f"{name}.weight"], kept_weights[f"{name}.weight"]
    left = {row.tobytes() for row in after}
    gone = [index for index, row in enumerate(before) if row.tobytes() not in left]
    assert len(gone) == len(before) - len(after) > 0
    x = batch(6, tuple(arch["input"]))
    graph = dependency_graph(module, x)
    target = module.get_submodule(name)
    handler = graph.get_pruner_of_module(target).prune_out_channels
    graph.get_pruning_group(target, handler, gone).prune()
    for layer in module.modules():
        if isinstance(layer, nn.GroupNorm) and name == "third":
            layer.num_groups = min(layer.num_groups, layer.num_channels)  # the library leaves this to its users
    assert {key: value.shape for key, value in module.named_parameters()} == {
        key: value.shape for key, value in kept_weights.items()
    }
    for key, value in module.named_parameters():
        assert np.array_equal(value.detach().numpy(), kept_weights[key]), key
    torch.testing.assert_close(run(small, kept_weights, x), module.train()(x).detach(), rtol=1e-4, atol=1e-5)


def test_the_papers_networks_have_the_papers_units() -> None:
    mobilenet = units(from_fixed({"space": "fixed", "model": "mobilenet", "input": [3, 32, 32], "classes": 10}))
    assert [unit.width for unit in mobilenet] == [32, 64, 128, 128, 256, 256, *[512] * 6, 1024, 1024]
    assert [unit.name for unit in mobilenet] == ["0.0", *(f"{block}.3" for block in range(1, 14))]
    assert [unit.width for unit in units(from_fixed(CONVNET))] == CONVNET["widths"]


def test_residual_stages_are_one_unit_and_the_output_layer_is_not_a_unit() -> None:
    found = units(from_fixed(RESNET))
    assert len(found) == 4 + 8  # a stage each, and the inside of each of the eight blocks
    assert found[0] == Unit("0.0", 4, ("0.0", "1.branch.1", "2.branch.1"))
    assert found[4] == Unit("3.branch.1", 5, ("3.branch.1", "3.shortcut.0", "4.branch.1"))
    assert all("11" not in unit.layers for unit in found)  # the last linear layer


def test_units_of_a_users_module() -> None:
    assert units(described(Joined)) == [
        Unit("stem.0", 6, ("stem.0", "outer")),
        Unit("inner", 4, ("inner",)),
        Unit("left", 5, ("left", "wide")),
        Unit("right", 7, ("right", "wide")),
        Unit("last", 8, ("last",)),
    ]
    assert units(described(Grouped)) == [
        Unit("first", 4, ("first", "gate.3")),  # eight channels, two at a time: the convolution behind has two groups
        Unit("gate.1", 4, ("gate.1",)),
        Unit("grouped", 3, ("grouped",)),
        Unit("hidden", 7, ("hidden",)),
    ]
    assert [(unit.name, unit.width) for unit in units(described(Repeated))] == [("first", 6)]
    assert [unit.width for unit in units(described(GroupNormed))] == [4, 4, 6]


def test_a_layer_that_makes_as_many_channels_as_the_input_has_and_is_added_to_it_stays() -> None:
    class Around(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.same, self.free = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 4, 3)
            self.many = nn.Conv2d(4, 8, 3, groups=4)  # two filters for each channel: no width of its own
            self.answer = nn.Linear(8, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            return self.answer(self.many(self.free(x + self.same(x))).mean((2, 3)))

    arch = describe(weighted(Around()), SHAPE, CLASSES)
    assert [(unit.name, unit.width) for unit in units(arch)] == [("free", 1), ("many", 2)]
    with refused(ArchitectureError, "width-out-of-range", "'free'", 2, 1):
        narrowed(arch, "free", 2)


def test_norms_by_hand_and_ties_go_to_the_later_filter() -> None:
    module = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    arch = describe(module, [2], 2)
    weights = Tensors(
        {
            "0.weight": np.array([[3, 4], [0, 1], [1, 0], [6, 8]], np.float32),
            "0.bias": np.array([0, 100, 200, 0], np.float32),  # biases do not count
            "2.weight": np.arange(8, dtype=np.float32).reshape(2, 4),
            "2.bias": np.zeros(2, np.float32),
        }
    )
    assert filter_norms(arch, weights, "0").tolist() == [5, 1, 1, 10]
    small, kept = prune(arch, weights, "0", 3)
    assert kept["0.bias"].tolist() == [0, 100, 0]  # of the two equal ones, the later went
    assert kept["2.weight"].tolist() == [[0, 1, 3], [4, 5, 7]]
    assert small["layers"]["0"]["outputs"] == small["layers"]["2"]["inputs"] == 3
    assert weights["0.weight"].shape == (4, 2) and arch["layers"]["0"]["outputs"] == 4  # nothing is changed in place
    same, all_of_them = prune(arch, weights, "0", 4)
    assert same == arch
    assert all_of_them.whole_digest() == weights.whole_digest()


def test_norms_of_a_residual_unit_add_up_over_its_layers() -> None:
    arch = from_fixed(RESNET)
    weights = initial(arch, np.random.default_rng(4))
    squares = sum(
        np.square(weights[f"{layer}.weight"], dtype=np.float64).sum((1, 2, 3)) for layer in unit_of(arch, "0.0").layers
    )
    np.testing.assert_allclose(filter_norms(arch, weights, "0.0"), np.sqrt(squares))


def test_groups_shrink_by_the_same_fraction() -> None:
    arch = described(Joined)
    together = merged(units(arch), [["inner", "last"], ["left"]])
    assert together == [
        Unit("stem.0", 6, ("stem.0", "outer")),
        Unit("inner+last", 8, ("inner", "last")),
        Unit("left", 5, ("left", "wide")),
        Unit("right", 7, ("right", "wide")),
    ]
    small = narrowed(arch, "inner+last", 5)  # 5 of 8, and 2.5 of 4, rounded up
    assert {unit.name: unit.width for unit in units(small)} == {
        "stem.0": 6,
        "inner": 3,
        "left": 5,
        "right": 7,
        "last": 5,
    }
    weights = weights_of(original(Joined))
    one_by_one = prune(*prune(arch, weights, "inner", 3), "last", 5)
    both = prune(arch, weights, "inner+last", 5)
    assert both[0] == one_by_one[0]
    assert all(np.array_equal(both[1][name], one_by_one[1][name]) for name in weights)
    assert {unit.width for unit in units(narrowed(arch, "inner+last", 1)) if unit.name in ("inner", "last")} == {1}


def test_groups_may_name_layers_and_modules() -> None:
    found = units(from_fixed(RESNET))
    block = merged(found, [["1"]])  # the first residual block: its inside, and the stage its outside belongs to
    assert block[0].name == "0.0+1.branch.0.0"
    assert len(block) == len(found) - 1
    assert merged(found, [["3.shortcut.0", "4.branch.0.0"]])[4].name == "3.branch.1+4.branch.0.0"
    assert merged(found, []) == found
    with refused(ArchitectureError, "unknown-unit", "'3.branchh'"):
        merged(found, [["3.branchh"]])
    with refused(ArchitectureError, "unit-in-two-groups", "'0.0'", "'2'"):
        merged(found, [["0.0", "1.branch.0.0"], ["2"]])


@pytest.mark.parametrize(
    ("name", "keep", "code", "named"),
    [
        ("0.0", 0, "width-out-of-range", ["'0.0'", 0, 5]),
        ("0.0", 6, "width-out-of-range", ["'0.0'", 6, 5]),
        ("0.0", True, "width-out-of-range", ["'0.0'", True, 5]),
        ("0.00", 1, "unknown-unit", ["'0.00'", "'0.0'"]),
        ("9", 1, "unknown-unit", ["'9'"]),
        ("0.0+x", 1, "unknown-unit", ["'x'"]),
    ],
)
def test_what_cannot_be_pruned_is_named(name: str, keep: int, code: str, named: list[object]) -> None:
    arch = from_fixed(CONVNET)
    with refused(ArchitectureError, code, *named):
        narrowed(arch, name, keep)
    with refused(ArchitectureError, code, *named):
        prune(arch, initial(arch, np.random.default_rng(0)), name, keep)


def test_a_group_of_units_has_no_filter_norms() -> None:
    arch = from_fixed(CONVNET)
    with refused(ArchitectureError, "several-units", "'0.0+1.0'"):
        filter_norms(arch, initial(arch, np.random.default_rng(0)), "0.0+1.0")


@pytest.mark.parametrize("source", [CONVNET, MOBILENET, RESNET, Joined, Grouped, GroupNormed, Repeated])
def test_down_to_one_filter_everywhere_the_units_keep_their_names(source: Any) -> None:
    arch = described(source)
    weights = initial(arch, np.random.default_rng(0))
    names = [unit.name for unit in units(arch)]
    for name in names:
        arch, weights = prune(arch, weights, name, 1)
    assert [(unit.name, unit.width) for unit in units(arch)] == [(name, 1) for name in names]
    assert {name: tuple(p.shape) for name, p in skeleton(arch).named_parameters()} == {
        name: array.shape for name, array in weights.items()
    }
    assert build(arch)(batch(3, tuple(arch["input"]))).shape == (3, arch["classes"])
