"""Gradients that are clipped: against torch's own, and where they are short enough."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from atoll import spaces
from atoll.errors import ConfigError
from atoll.training.networks import load, network
from atoll.training.sgd import TrainSettings, clip_norm, train
from refusals import refused

ARCH = {"space": "fixed", "model": "mlp", "input": [4], "classes": 3, "hidden": [5]}


def test_by_hand() -> None:
    gradients = [torch.tensor([3.0]), torch.tensor([[0.0, 4.0]])]
    clip_norm(gradients, 10.0)
    assert torch.cat([g.flatten() for g in gradients]).tolist() == [3.0, 0.0, 4.0]
    clip_norm(gradients, 1.0)
    assert torch.cat([g.flatten() for g in gradients]).tolist() == pytest.approx([0.6, 0.0, 0.8], abs=1e-6)


def test_two_steps_are_torch_s() -> None:
    """SGD with momentum and weight decay, the gradient clipped before both."""
    rng = np.random.default_rng(0)
    weights = spaces.initial(ARCH, rng)
    x, y = (10 * rng.normal(size=(6, 4))).astype(np.float32), np.arange(6) % 3
    how = TrainSettings(epochs=2, batch=6, lr=0.5, momentum=0.9, weight_decay=0.01, clip=0.2)
    ours = train(network(ARCH), weights, x, y, how, np.random.default_rng(1)).weights
    module = spaces.build(ARCH)
    load(module, weights)
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5, momentum=0.9, weight_decay=0.01)
    for _ in range(2):
        optimiser.zero_grad()
        functional.cross_entropy(module(torch.tensor(x)), torch.tensor(y)).backward()
        assert torch.nn.utils.clip_grad_norm_(module.parameters(), 0.2) > 0.2
        optimiser.step()
    for name, parameter in module.named_parameters():
        assert np.allclose(ours[name], parameter.detach().numpy(), atol=1e-5)


def test_a_length_that_is_none() -> None:
    for wrong in (0.0, -1.0, float("inf")):
        with refused(ConfigError, "invalid-setting", f"clip = {wrong}"):
            TrainSettings(clip=wrong)


def test_the_longest_update_by_hand() -> None:
    """Ten rows in batches of four are three steps an epoch: 0.5 x 6 x 0.2 / (1 - 0.5) = 1.2 without weight decay."""
    weights = {"w": np.array([3.0, 4.0], np.float32)}
    plain = TrainSettings(epochs=2, batch=4, lr=0.5, momentum=0.5, clip=0.2)
    assert plain.longest_update(10, weights) == pytest.approx(1.2, rel=1e-4)
    assert replace(plain, steps=5).longest_update(10, weights) == pytest.approx(1.0, rel=1e-4)
    assert replace(plain, clip=None).longest_update(10, weights) is None
    # The reach is 6; weights of length 5 grow to at most (5 + 1.2) x exp(0.6).
    decayed = replace(plain, weight_decay=0.1).longest_update(10, weights)
    assert decayed == pytest.approx(6 * (0.2 + 0.1 * 6.2 * np.exp(0.6)), rel=1e-4)
    assert replace(plain, weight_decay=1e306).longest_update(10, weights) is None


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("lr", [1e-7, 0.5])
def test_no_training_is_longer_than_the_longest_update(momentum: float, weight_decay: float, lr: float) -> None:
    rng = np.random.default_rng(0)
    weights = spaces.initial(ARCH, rng)
    x, y = (10 * rng.normal(size=(30, 4))).astype(np.float32), np.arange(30) % 3
    how = TrainSettings(epochs=5, batch=4, lr=lr, momentum=momentum, weight_decay=weight_decay, clip=0.2)
    trained = train(network(ARCH), weights, x, y, how, rng).weights
    length = np.sqrt(sum(np.square(trained[name] - weights[name]).sum() for name in weights))
    longest = how.longest_update(30, weights)
    assert longest is not None and 0 < length <= longest
