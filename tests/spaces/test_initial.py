"""Initial weights come from the passed stream only."""

from __future__ import annotations

import numpy as np
import torch

from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.spaces import build, initial
from atoll.spaces.initial import kaiming_uniform

CONVNET = {"space": "fixed", "model": "cnn", "input": [1, 8, 8], "classes": 10}


def test_same_stream_same_weights() -> None:
    first, again, other = initial(CONVNET, stream(1)), initial(CONVNET, stream(1)), initial(CONVNET, stream(2))
    assert first.whole_digest() == again.whole_digest() != other.whole_digest()
    assert list(first) == [name for name, _ in build(CONVNET).named_parameters()]
    assert {array.dtype for array in first.values()} == {np.dtype(np.float32)}


def test_values_fill_the_range_that_torch_uses() -> None:
    weights = kaiming_uniform({"a.weight": (64, 32, 3, 3), "a.bias": (4096,)}, stream(1))
    bound = 1 / np.sqrt(32 * 9)
    for array in weights.values():
        assert bound * 0.99 < np.abs(array).max() <= bound
        assert abs(float(array.mean())) < bound / 20
        assert abs(float(array.std()) - bound / np.sqrt(3)) < bound / 20
    torch_bound = max(float(p.detach().abs().max()) for p in torch.nn.Conv2d(32, 64, 3).parameters())
    assert abs(torch_bound - bound) < bound / 50


def test_normalisation_starts_as_the_identity() -> None:
    weights: Tensors = kaiming_uniform({"norm.weight": (5,), "norm.bias": (5,)}, stream(1))
    assert weights["norm.weight"].tolist() == [1] * 5
    assert weights["norm.bias"].tolist() == [0] * 5


def test_global_random_states_are_untouched() -> None:
    before_torch, before_numpy = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    build(CONVNET)
    initial(CONVNET, stream(1))
    assert torch.equal(torch.random.get_rng_state(), before_torch)
    assert np.array_equal(np.random.get_state()[1], before_numpy)
