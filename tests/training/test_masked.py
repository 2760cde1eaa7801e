"""Training inside a graph: nothing leaves it, and inside it is plain SGD."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll import spaces
from atoll.rng import stream
from atoll.spaces.sparse import space as sparse
from atoll.training.sgd import TrainSettings, train

MLP: dict[str, Any] = {
    "space": "sparse",
    "model": "mlp",
    "input": [1, 4, 4],
    "classes": 3,
    "hidden": [8],
    "epsilon": 2,
    "graph": 3,
}
CNN: dict[str, Any] = {**MLP, "model": "cnn", "filters": [2], "kernel": 3}
RNG = stream(1, "masked")
X, Y = RNG.random((20, 1, 4, 4), dtype=np.float32), RNG.integers(0, 3, 20)


@pytest.mark.parametrize("arch", [MLP, CNN], ids=["by hand", "autograd"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_weights_outside_the_graph_stay_zero(arch: dict[str, Any], momentum: float, decay: float) -> None:
    weights, graphs = spaces.initial(arch, stream(1, "w")), sparse.masks(arch)
    settings = TrainSettings(3, 5, 0.1, momentum, decay)
    trained = train(spaces.build(arch), weights, X, Y, settings, stream(2, "t"), masks=graphs).weights
    for name, mask in graphs.items():
        assert not trained[name][~mask].any()
        assert (trained[name][mask] != weights[name][mask]).any()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_both_loops_agree(momentum: float) -> None:
    """The loop written by hand against autograd with the gradient masked."""
    weights, graphs = spaces.initial(MLP, stream(1, "w")), sparse.masks(MLP)
    settings = TrainSettings(2, 5, 0.1, momentum, 0.01)
    module = spaces.build(MLP)
    fast = train(module, weights, X, Y, settings, stream(2, "t"), masks=graphs).weights
    other = spaces.build(MLP)
    slow = train(other, weights, X, Y, settings, stream(2, "t"), masks=graphs, forward=other).weights
    for name in weights:
        np.testing.assert_allclose(fast[name], slow[name], rtol=1e-4, atol=1e-6)


def test_a_full_graph_changes_nothing() -> None:
    full = {**MLP, "epsilon": 128}
    weights = spaces.initial(full, stream(1, "w"))
    assert all(mask.all() for mask in sparse.masks(full).values())
    one = train(
        spaces.build(full), weights, X, Y, TrainSettings(2, 5), stream(2, "t"), masks=sparse.masks(full)
    ).weights
    two = train(spaces.build(full), weights, X, Y, TrainSettings(2, 5), stream(2, "t")).weights
    assert all(np.array_equal(one[name], two[name]) for name in weights)
