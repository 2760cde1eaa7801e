"""A client's gradient: of one batch that it draws, or by way of its weights' change."""

from __future__ import annotations

import numpy as np
import pytest

from atoll import spaces
from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.training.gradients import batch_gradient, epochs_gradient
from atoll.training.networks import network

ARCH = {"space": "fixed", "model": "mlp", "hidden": [3], "input": [2], "classes": 2}


def rows(count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = stream(1, "rows")
    return rng.normal(size=(count, 2)).astype(np.float32), rng.integers(0, 2, count)


def weights() -> Tensors:
    return spaces.initial(ARCH, stream(1, "weights"))


def test_the_slope_of_the_head_by_hand() -> None:
    """With zero weights all outputs are 1/2: the bias' gradient is the mean of (1/2 - y), and class 0 is guessed."""
    x, y = rows(8)
    zeros = Tensors({name: np.zeros_like(array) for name, array in weights().items()})
    slope = batch_gradient(network(ARCH), zeros, x, y, 8, stream(1, "client"))
    last = [name for name in zeros if name.endswith("bias")][-1]
    ones = float(y.mean())
    assert np.allclose(slope.gradient[last], [0.5 - (1 - ones), 0.5 - ones])
    assert slope.rows == 8 and slope.correct == int((y == 0).sum())


def test_a_batch_is_drawn_from_the_stream() -> None:
    x, y = rows(20)
    first, again, other = (
        batch_gradient(network(ARCH), weights(), x, y, 5, stream(1, name)) for name in ("one", "one", "two")
    )
    assert first.rows == 5 and first.gradient.whole_digest() == again.gradient.whole_digest()
    assert first.gradient.whole_digest() != other.gradient.whole_digest()
    assert batch_gradient(network(ARCH), weights(), x, y, 50, stream(1, "all")).rows == 20


def test_epochs_sum_their_gradients_up() -> None:
    """One epoch of one batch is the plain gradient; two small steps are nearly twice it."""
    x, y = rows(10)
    plain = batch_gradient(network(ARCH), weights(), x, y, 10, stream(1, "client"))
    once = epochs_gradient(network(ARCH), weights(), x, y, 1, 10, 0.1, stream(1, "client"))
    twice = epochs_gradient(network(ARCH), weights(), x, y, 2, 10, 1e-3, stream(1, "client"))
    assert (plain.correct, plain.rows) == (once.correct, once.rows) and twice.rows == 20
    for name, array in plain.gradient.items():
        assert np.allclose(once.gradient[name], array, atol=1e-5)
        assert np.allclose(twice.gradient[name], 2 * array, atol=5e-3)


def test_the_weights_that_came_in_stay() -> None:
    x, y = rows(10)
    start = weights()
    before = start.whole_digest()
    epochs_gradient(network(ARCH), start, x, y, 2, 4, 0.5, stream(1, "client"))
    fresh = Tensors(dict(start))
    assert fresh.whole_digest() == before
    with pytest.raises(ValueError, match="'other'"):
        batch_gradient(network(ARCH), Tensors({"other": np.zeros(2, np.float32)}), x, y, 4, stream(1, "client"))
