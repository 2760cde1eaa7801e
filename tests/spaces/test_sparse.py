"""Sparse networks: Eq. 5 by hand, the paper's counts, weights that stay inside the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll import spaces
from atoll.core import wire
from atoll.errors import ArchitectureError
from atoll.rng import stream
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.graph import draw, expected_connections, probability, remove_smallest
from refusals import refused

MLP: dict[str, Any] = {
    "space": "sparse",
    "model": "mlp",
    "input": [1, 28, 28],
    "classes": 10,
    "hidden": [200, 200],
    "epsilon": 20,
    "graph": 1,
}
CNN: dict[str, Any] = {**MLP, "model": "cnn", "filters": [32, 64], "kernel": 3, "hidden": [128]}
SMALL: dict[str, Any] = {**MLP, "input": [6], "classes": 3, "hidden": [5, 4], "epsilon": 1}


def test_equation_5_by_hand() -> None:
    assert probability(20, 784, 200) == pytest.approx(20 * 984 / (784 * 200))
    assert probability(1, 4, 4) == 0.5
    assert probability(20, 200, 10) == 1.0  # 20 x 210 connections do not fit between 200 and 10 neurons
    assert expected_connections(20, 784, 200) == pytest.approx(19_680)
    assert expected_connections(20, 200, 10) == 2_000


def test_the_paper_s_standard_networks() -> None:
    assert spaces.cost(sparse.standard(MLP)).params == 199_210
    assert spaces.cost(sparse.standard(CNN)).params == 1_625_866


@pytest.mark.parametrize("epsilon", [20, 50, 100])
def test_connections_follow_the_arithmetic(epsilon: int) -> None:
    """Within 2 % of the sum of min(1, p) n_in n_out, plus biases (and for the CNN its convolutions)."""
    for arch, pairs, dense in (
        (MLP, [(784, 200), (200, 200), (200, 10)], 410),
        (CNN, [(12_544, 128), (128, 10)], 128 + 10 + 32 * 9 + 32 + 64 * 32 * 9 + 64),
    ):
        expected = sum(expected_connections(epsilon, *pair) for pair in pairs) + dense
        assert spaces.cost({**arch, "epsilon": epsilon}).params == pytest.approx(expected, rel=0.02)


def test_a_sparse_layer_costs_its_connections() -> None:
    held = sum(int(mask.sum()) for mask in sparse.masks(MLP).values())
    cost = spaces.cost(MLP)
    assert (cost.macs, cost.params, cost.bytes) == (held, held + 410, 4 * (held + 410))


def test_the_graph_is_the_architecture_s_own() -> None:
    """Server and client draw the same graph from equal data; another number, layer or epsilon draws another."""
    again = sparse.masks({**MLP, "graph": 1})
    for name, mask in sparse.masks(MLP).items():
        assert np.array_equal(mask, again[name])
        assert not mask.flags.writeable
    other = sparse.masks({**MLP, "graph": 2})
    assert not np.array_equal(sparse.masks(MLP)["layers.0.weight"], other["layers.0.weight"])
    assert not np.array_equal(draw(1, "a", 1, (8, 8)), draw(1, "b", 1, (8, 8)))
    assert sparse.masks(MLP)["layers.2.weight"].all()  # p = 1
    assert all(mask.all() for mask in sparse.masks(sparse.standard(MLP)).values())


def test_initial_weights_lie_inside_the_graph_and_follow_its_fan_in() -> None:
    weights = spaces.initial(MLP, stream(1, "test"))
    for name, mask in sparse.masks(MLP).items():
        assert np.array_equal(weights[name] != 0, mask)
        assert np.abs(weights[name]).max() <= np.sqrt(6 * len(mask) / mask.sum()) * 1.0001
    assert not weights["layers.0.bias"].any()


@given(st.integers(0, 1000), st.integers(1, 5))
def test_along_the_graph_and_back(graph: int, epsilon: int) -> None:
    arch = {**SMALL, "graph": graph, "epsilon": epsilon}
    whole = spaces.initial(arch, stream(graph, "test"))
    vectors = sparse.pack(arch, whole)
    assert {name: len(vectors[name]) for name in sparse.masks(arch)} == {
        name: int(mask.sum()) for name, mask in sparse.masks(arch).items()
    }
    back = sparse.unpack(arch, vectors)
    assert all(np.array_equal(back[name], whole[name]) for name in whole)
    assert sparse.connections(arch, vectors) == spaces.cost(arch).params


def test_what_was_removed_is_not_counted_but_a_zero_bias_is() -> None:
    vectors = sparse.pack(SMALL, spaces.initial(SMALL, stream(1, "test")))
    name = "layers.0.weight"
    thinner = vectors.replaced({name: np.where(np.arange(len(vectors[name])) < 2, 0, vectors[name])})
    assert sparse.connections(SMALL, thinner) == spaces.cost(SMALL).params - 2


def test_what_an_upload_takes_by_hand_and_on_the_wire() -> None:
    """Whole matrices of 4 x 2 and 2 x 3 and 5 biases: 19 weights. With xi a bit for each of 14 connections, 2 bytes."""
    arch = {**MLP, "input": [4], "classes": 3, "hidden": [2], "epsilon": 10**9}
    assert sparse.upload_bytes(arch, 19) == 76 and sparse.executed_macs(arch) == spaces.cost(arch).macs == 14
    assert sparse.upload_bytes({**arch, "xi": 0.5}, 12) == 4 * 12 + 2
    # Missing connections are not sent, and are computed all the same.
    wide = {**MLP, "xi": 0.4}
    held = sum(int(mask.sum()) for mask in sparse.masks(wide).values())
    assert sparse.executed_macs(wide) == 784 * 200 + 200 * 200 + 200 * 10 > spaces.cost(wide).macs == held
    packed = sparse.pack(wide, spaces.initial(wide, stream(1, "test")))
    graphs = sparse.masks(wide)
    upload = packed.replaced({name: remove_smallest(packed[name], 0.4) for name in graphs})
    counted = sparse.upload_bytes(wide, sparse.connections(wide, upload))
    assert counted == pytest.approx(wire.size({"weights": upload}, digests=False), rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "code", "named"),
    [
        ({"epsilon": 0}, "invalid-setting", "epsilon = 0"),
        ({"epsilon": 2.5}, "invalid-setting", "epsilon = 2.5"),
        ({"xi": 1}, "invalid-setting", "xi = 1"),
        ({"xi": -0.1}, "invalid-setting", "xi = -0.1"),
        ({"xi": float("nan")}, "invalid-setting", "xi = nan"),
        ({"lr": 0}, "invalid-setting", "lr = 0"),
        ({"graph": -1}, "invalid-setting", "graph = -1"),
        ({"graph": None}, "invalid-setting", "graph = None"),
        ({"hidden": [0]}, "invalid-setting", "hidden = [0]"),
        ({"hidden": [0]}, "invalid-setting", "hidden = [0]"),
        ({"model": "cnnn"}, "unknown-model", "'cnnn'"),
        ({"kernal": 3}, "unknown-setting", "'kernal'"),
    ],
)
def test_bounds_crossed_are_named(wrong: dict[str, Any], code: str, named: str) -> None:
    with refused(ArchitectureError, code, named) as problem:
        spaces.skeleton({**MLP, **wrong})
    assert "\n" not in str(problem.value)
