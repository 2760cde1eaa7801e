"""The DARTS space: sizes, names, and what its three forms of network compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll import spaces
from atoll.core.messages import Schema, Tensors
from atoll.errors import ArchitectureError, ConfigError
from atoll.spaces.cost import measured_cost
from atoll.spaces.darts import space as darts
from atoll.spaces.darts.layers import NONE, SKIP
from atoll.spaces.norm import batch_norms
from atoll.training.calibration import calibrate, fixed_module, statistics_form
from atoll.training.networks import load, network
from atoll.training.sgd import TrainSettings, train
from refusals import refused

UNIFORM = np.full((darts.EDGES, len(darts.OPERATIONS)), 1 / len(darts.OPERATIONS))
# The network that the DARTS paper reports (second order, CIFAR-10); its authors' program counts 3.349342 million.
PUBLISHED = {
    "normal": [
        ["sep_conv_3x3", 0],
        ["sep_conv_3x3", 1],
        ["sep_conv_3x3", 0],
        ["sep_conv_3x3", 1],
        ["sep_conv_3x3", 1],
        ["skip_connect", 0],
        ["skip_connect", 0],
        ["dil_conv_3x3", 2],
    ],
    "reduce": [
        ["max_pool_3x3", 0],
        ["max_pool_3x3", 1],
        ["skip_connect", 2],
        ["max_pool_3x3", 1],
        ["max_pool_3x3", 0],
        ["skip_connect", 2],
        ["skip_connect", 2],
        ["max_pool_3x3", 1],
    ],
}


def random_key(rng: np.random.Generator) -> dict[str, Any]:
    return {kind: rng.integers(0, len(darts.OPERATIONS), darts.EDGES) for kind in darts.KINDS}


def constant_key(operation: int) -> dict[str, Any]:
    return {kind: [operation] * darts.EDGES for kind in darts.KINDS}


def images(rows: int, arch: dict[str, Any], seed: int = 0) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=(rows, *arch["input"])).astype(np.float32))


def loaded(arch: dict[str, Any], weights: Tensors) -> torch.nn.Module:
    module = spaces.build(arch)
    load(module, weights)
    return module


# -- sizes -------------------------------------------------------------------------------------------------------------


def test_the_supernet_of_the_paper_has_its_size() -> None:
    arch = darts.supernet([3, 32, 32], 10, channels=16, cells=8)
    assert darts.weight_count(arch) == spaces.cost(arch).params == 1_930_618
    assert darts.shared_weights(arch) == 99_450
    sizes = darts.operation_weights(arch)
    assert sum(int(table.sum()) for table in sizes.values()) == 1_831_168
    assert darts.expected_weights(arch, UNIFORM, UNIFORM) == 328_346
    alphas = sum(p.numel() for name, p in spaces.skeleton(arch).named_parameters() if name in darts.ALPHAS)
    assert sum(p.numel() for p in spaces.skeleton(arch).parameters()) - alphas == 1_930_618


def test_a_published_network_has_its_size() -> None:
    arch = darts.from_genotype(darts.supernet([3, 32, 32], 10), PUBLISHED, channels=36, cells=20)
    assert darts.weight_count(arch) == spaces.cost(arch).params == 3_349_342


def test_sizes_by_hand() -> None:
    """One cell, one channel: a reduction of 2 channels on every edge."""
    arch = darts.supernet([1, 4, 4], 2, channels=1, cells=1)
    stem, preprocessing, head = 1 * 3 * 9 + 2 * 3, 2 * (3 * 2), 8 * 2 + 2
    assert darts.shared_weights(arch) == stem + preprocessing + head
    table = darts.operation_weights(arch)["reduce"]
    # separable: twice (a depthwise kernel for 2 channels, 2 x 2 pointwise); dilated: once; skip halves edges 0 and 1
    assert table[0].tolist() == [0, 0, 0, 4, 2 * (18 + 4), 2 * (50 + 4), 18 + 4, 50 + 4]
    assert table[4].tolist() == [0, 0, 0, 0, 44, 108, 22, 54]  # from node 0: not halved
    assert not darts.operation_weights(arch)["normal"].any()


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**32), channels=st.integers(1, 5), cells=st.integers(1, 3), side=st.integers(5, 9))
def test_the_table_is_the_module_s(seed: int, channels: int, cells: int, side: int) -> None:
    """Names, order, shapes and MACs of a table entry are those of the module, for all three forms."""
    rng = np.random.default_rng(seed)
    mixed = darts.supernet([2, side, side + 1], 3, channels, cells)
    whole = darts.shapes(mixed)
    path = darts.sub_model(mixed, random_key(rng))
    for arch in (path, darts.from_genotype(mixed, darts.random_genotype(rng)), mixed):
        module = spaces.skeleton(arch)
        own = {n: tuple(p.shape) for n, p in module.named_parameters() if n not in darts.ALPHAS}
        assert list(own.items()) == list(darts.shapes(arch).items())
        assert darts.names(arch) == list(own)
        cost = darts.cost(arch)
        assert cost.params == darts.weight_count(arch) == sum(int(np.prod(shape)) for shape in own.values())
        if arch is not mixed or cells == 1:  # counting takes longest
            assert cost.macs == measured_cost(module, tuple(arch["input"])).macs
    assert {name: whole[name] for name in darts.names(path)} == darts.shapes(path)


def test_expected_weights_is_the_mean() -> None:
    """Under a policy that is certain of all edges but one, the mean of its two sub-models."""
    arch = darts.supernet([3, 8, 8], 4, channels=2, cells=3)
    key = random_key(np.random.default_rng(3))
    key["normal"][5] = 4
    other = {kind: values.copy() for kind, values in key.items()}
    other["normal"][5] = 7
    policy = {kind: np.eye(8)[key[kind]] for kind in darts.KINDS}
    policy["normal"][5] = [0, 0, 0, 0, 0.25, 0, 0, 0.75]
    sizes = [darts.weight_count(darts.sub_model(arch, one)) for one in (key, other)]
    assert darts.expected_weights(arch, policy["normal"], policy["reduce"]) == 0.25 * sizes[0] + 0.75 * sizes[1]


# -- what they compute -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", [8, 7])
def test_a_sub_model_is_the_supernet_with_one_operation_an_edge(side: int) -> None:
    arch = darts.supernet([3, side, side], 5, channels=4, cells=4)
    rng = np.random.default_rng(1)
    weights = spaces.initial(arch, rng)
    supernet, x = loaded(arch, weights), images(6, arch)
    for key in (random_key(rng), random_key(rng), constant_key(SKIP), constant_key(NONE)):
        path = darts.sub_model(arch, key)
        shares = {kind: torch.eye(8)[torch.tensor(path["key"][kind])] for kind in darts.KINDS}
        with torch.no_grad():
            own = loaded(path, weights.slice(darts.names(path)))(x)
            mixed = supernet(x, shares)
        assert own.shape == (6, 5) and torch.isfinite(own).all()
        assert torch.allclose(own, mixed, atol=1e-6, rtol=0)


def test_a_view_computes_the_same_as_a_separate_module() -> None:
    """And what ran before it leaves no trace."""
    arch = darts.supernet([3, 8, 8], 5, channels=4, cells=3)
    rng = np.random.default_rng(2)
    weights = spaces.initial(arch, rng)
    data = images(8, arch).numpy(), rng.integers(0, 5, 8)
    how = TrainSettings(batch=4, momentum=0.9)
    paths = [darts.sub_model(arch, random_key(rng)) for _ in range(3)]

    def trained(path: dict[str, Any], module: torch.nn.Module) -> Tensors:
        part = weights.slice(darts.names(path))
        return train(module, part, *data, how, np.random.default_rng(5)).weights

    alone = [trained(path, spaces.build(path).to(memory_format=torch.channels_last)) for path in paths]
    together = [trained(path, network(path)) for path in (*paths, *reversed(paths))]
    for one, *others in zip(alone, together[:3], reversed(together[3:]), strict=True):
        for other in others:
            assert list(one) == list(other)
            assert all(np.array_equal(one[name], other[name]) for name in one)
    assert network(paths[0]).stem is network(paths[1]).stem


def test_the_alphas_are_trained_by_gradient() -> None:
    arch = darts.supernet([1, 8, 8], 3, channels=2, cells=3)
    weights = spaces.initial(arch, np.random.default_rng(0))
    assert set(weights) - set(darts.names(arch)) == set(darts.ALPHAS)
    assert 5e-4 < weights["alpha.normal"].std() < 2e-3
    x, y = images(6, arch).numpy(), np.arange(6) % 3
    after = train(network(arch), weights, x, y, TrainSettings(batch=6), np.random.default_rng(0)).weights
    assert all(not np.array_equal(after[name], weights[name]) for name in darts.ALPHAS)
    only = train(network(arch), weights.slice(list(darts.ALPHAS)), x, y, TrainSettings(), np.random.default_rng(0))
    assert list(only.weights) == list(darts.ALPHAS)


def test_training_works_if_a_cell_reads_no_inputs() -> None:
    """With `none` everywhere only the head's shift matters; all other gradients are zero."""
    arch = darts.sub_model(darts.supernet([1, 4, 4], 2, channels=1, cells=3), constant_key(NONE))
    weights = spaces.initial(arch, np.random.default_rng(0))
    x, y = images(4, arch).numpy(), np.array([0, 0, 0, 1])
    after = train(network(arch), weights, x, y, TrainSettings(batch=4), np.random.default_rng(0)).weights
    assert [name for name in weights if not np.array_equal(after[name], weights[name])] == ["head.0.bias"]


def test_a_genotype_network_by_hand() -> None:
    """Skip connections only, one reduction cell without channels to mix: the network is nearly linear."""
    genotype = {kind: [["skip_connect", 0], ["skip_connect", 1]] * 4 for kind in darts.KINDS}
    arch = darts.from_genotype(darts.supernet([1, 6, 6], 2, channels=1, cells=1), genotype)
    module, x = loaded(arch, spaces.initial(arch, np.random.default_rng(4))), images(5, arch)
    cell = module.cells[0]
    with torch.no_grad():
        stem = module.stem(x)
        states = [preprocess(stem) for preprocess in cell.inputs]
        nodes = [cell.edges[2 * n](states[0]) + cell.edges[2 * n + 1](states[1]) for n in range(4)]
        assert torch.equal(module(x), module.head(torch.cat(nodes, 1).mean((2, 3))))
    assert nodes[0].shape == (5, 2, 3, 3)


@pytest.mark.parametrize("side", [6, 5])
def test_a_factorised_reduction_sees_every_second_pixel_and_those_between(side: int) -> None:
    from atoll.spaces.darts.cells import FactorisedReduction
    from atoll.spaces.darts.layers import CellLayer

    halving = FactorisedReduction(CellLayer("halve", 1, 2, stride=2))
    x = torch.arange(float(side * side)).reshape(1, 1, side, side)
    with torch.no_grad():
        for convolution in (halving.even, halving.odd):
            convolution.weight.fill_(1.0)
        even, odd = halving(x)[0]
    assert even.tolist() == x[0, 0, ::2, ::2].tolist()
    between = x[0, 0, 1::2, 1::2].tolist()
    assert odd[: side // 2, : side // 2].tolist() == between
    if side % 2:
        assert odd[-1].tolist() == [0.0, 0.0, 0.0] and odd[:, -1].tolist() == [0.0, 0.0, 0.0]


def test_the_gradient_of_a_factorised_reduction_is_stored_as_its_image() -> None:
    from atoll.spaces.darts.cells import FactorisedReduction
    from atoll.spaces.darts.layers import CellLayer

    x = torch.ones(2, 4, 6, 6).to(memory_format=torch.channels_last).requires_grad_()
    (gradient,) = torch.autograd.grad(FactorisedReduction(CellLayer("halve", 4, 4, stride=2))(x).sum(), x)
    assert gradient.is_contiguous(memory_format=torch.channels_last)


def test_a_calibrated_network_works_on_a_single_image() -> None:
    arch = darts.from_genotype(
        darts.supernet([1, 8, 8], 3, channels=2, cells=3), darts.random_genotype(np.random.default_rng(0))
    )
    weights = spaces.initial(arch, np.random.default_rng(1))
    x = images(20, arch)
    statistics = calibrate(spaces.build(arch), weights, x.numpy(), 20)
    assert list(statistics) == list(statistics_form(arch))
    module = fixed_module(arch, weights, statistics)
    with torch.no_grad():
        batch = loaded(arch, weights)(x)
        assert torch.allclose(module(x[:1]), batch[:1], atol=1e-4)
    assert all(layer.mean is not None for layer in batch_norms(module).values())


# -- what cannot be ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "code", "named"),
    [
        ({"form": "mixd"}, "unknown-form", ["'mixd'", "'mixed'"]),
        ({"channels": 0}, "invalid-setting", ["'channels'", "0"]),
        ({"cells": True}, "invalid-setting", ["'cells'", "True"]),
        ({"classes": None}, "invalid-setting", ["'classes'", "None"]),
        ({"input": [64]}, "invalid-input-shape", ["[64]"]),
        ({"input": [3, 2, 9]}, "image-too-small", ["2x9", "8 cells", "3x3"]),
        ({"depth": 3}, "unknown-setting", ["'depth'"]),
        ({"key": {}}, "unknown-setting", ["'key'"]),
        ({"form": "path"}, "malformed-key", ["None"]),
        ({"form": "path", "key": {"normal": [0] * 14, "reduce": [0] * 13 + [8]}}, "malformed-key", ["'reduce'"]),
        (
            {"form": "path", "key": {"normal": [0] * 13, "reduce": [0] * 14}},
            "malformed-key",
            ["'normal'", "14", "0 to 7"],
        ),
        ({"form": "genotype"}, "malformed-genotype", ["'normal'", "'reduce'"]),
        ({"form": "genotype", "genotype": {**PUBLISHED, "normal": []}}, "malformed-genotype", ["genotype.normal", "8"]),
    ],
)
def test_architectures_that_cannot_be(change: dict[str, Any], code: str, named: list[str]) -> None:
    arch = {**darts.supernet([3, 32, 32], 10), **change}
    with refused(ArchitectureError, code, *named) as problem:
        spaces.build(arch)
    assert "\n" not in str(problem.value)


def test_the_smallest_images() -> None:
    for cells, side in ((1, 2), (2, 3), (3, 3), (8, 3)):
        arch = darts.supernet([1, side, side], 2, channels=1, cells=cells)
        key = random_key(np.random.default_rng(cells))
        for one in (darts.sub_model(arch, key), darts.sub_model(arch, constant_key(SKIP)), arch):
            with torch.no_grad():
                assert spaces.build(one)(images(3, arch)).shape == (3, 2)
        with refused(ArchitectureError, "image-too-small", f"{side}x{side - 1}"):
            darts.supernet([1, side, side - 1], 2, channels=1, cells=cells)


def test_tables_are_sent_elsewhere() -> None:
    with refused(ConfigError, "images-required"):
        darts.architecture_for(Schema("table", (30,), ("a", "b")))
    schema = Schema("image", (1, 28, 28), tuple("0123456789"))
    assert darts.architecture_for(schema, 8, 5) == darts.supernet([1, 28, 28], 10, 8, 5)


def test_no_global_random_state_is_touched() -> None:
    arch = darts.supernet([1, 8, 8], 2, channels=2, cells=3)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index, union-attr]
    spaces.build(arch)
    spaces.initial(arch, np.random.default_rng(0))
    darts.random_genotype(np.random.default_rng(0))
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # type: ignore[index]
