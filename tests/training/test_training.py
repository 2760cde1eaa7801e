"""One step by hand, many steps against torch's own optimiser, on every network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.errors import ConfigError
from atoll.rng import stream
from atoll.spaces import build, initial
from atoll.spaces.layers import Perceptron
from atoll.training.batches import bounds
from atoll.training.networks import network
from atoll.training.sgd import TrainSettings, train
from refusals import refused

THIN: list[dict[str, Any]] = [
    {"model": "mlp", "input": [20], "hidden": [17, 9]},
    {"model": "mlp", "input": [1, 8, 8], "hidden": [12]},
    {"model": "cnn", "input": [1, 8, 8], "filters": [4, 6], "hidden": [10]},
    {"model": "resnet18", "input": [3, 16, 16], "widths": [4, 4, 6, 8]},
    {"model": "mobilenet", "input": [3, 16, 16], "width": 0.125},
    {"model": "convnet", "input": [3, 16, 16], "width": 0.125},
]
NETWORKS = [{"space": "fixed", "classes": 5, **rest} for rest in THIN]
RULES = [
    TrainSettings(2, 8, 0.05),
    TrainSettings(2, 8, 0.05, momentum=0.5),
    TrainSettings(2, 8, 0.05, weight_decay=0.01),
    TrainSettings(2, 8, 0.05, momentum=0.9, weight_decay=0.01),
]


def rows_for(arch: dict[str, Any], rows: int) -> tuple[Array, Array]:
    rng = stream(1, "rows")
    return rng.random((rows, *arch["input"]), dtype=np.float32), rng.integers(0, arch["classes"], rows)


def by_optimiser(
    arch: dict[str, Any], weights: Tensors, x: Array, y: Array, settings: TrainSettings, seed: int
) -> dict[str, Array]:
    """The plain loop, in the same memory format: torch's kernels for the two formats round differently."""
    module, rng = build(arch).to(memory_format=torch.channels_last), stream(seed)
    module.load_state_dict({name: torch.tensor(array) for name, array in weights.items()})
    optimiser = torch.optim.SGD(
        module.parameters(), lr=settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    images = x.ndim == 4 and arch["model"] != "mlp"
    for _ in range(settings.epochs):
        order = rng.permutation(len(x))
        for start, stop in bounds(len(x), settings.batch):
            batch = torch.tensor(x[order[start:stop]])
            batch = batch.contiguous(memory_format=torch.channels_last) if images else batch
            optimiser.zero_grad()
            functional.cross_entropy(module(batch), torch.tensor(y[order[start:stop]])).backward()
            optimiser.step()
    return {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}


@pytest.mark.parametrize("arch", NETWORKS, ids=lambda arch: f"{arch['model']}-{len(arch['input'])}d")
@pytest.mark.parametrize("settings", RULES, ids=["plain", "momentum", "decay", "both"])
def test_equals_torch_optim_over_many_steps(arch: dict[str, Any], settings: TrainSettings) -> None:
    x, y = rows_for(arch, 65)  # the last row joins the batch before it
    weights = initial(arch, stream(2))
    outcome = train(network(arch), weights, x, y, settings, stream(3))
    expected = by_optimiser(arch, weights, x, y, settings, 3)
    assert outcome.steps == 16
    assert outcome.rows == 65
    for name, array in outcome.weights.items():
        np.testing.assert_allclose(array, expected[name], rtol=0, atol=1e-6 * np.abs(expected[name]).max())


def linear(weight: list[list[float]], bias: list[float]) -> Tensors:
    return Tensors({"layers.0.weight": np.array(weight, np.float32), "layers.0.bias": np.array(bias, np.float32)})


@pytest.mark.parametrize("kind", ["by hand", "autograd"])
def test_one_step_on_two_rows_by_hand(kind: str) -> None:
    # Zero weights: both classes have probability 1/2. Rows (1, 0) of class 0 and (0, 2) of class 1: the gradient of
    # output 0 is the mean of (-1/2)(1, 0) and (+1/2)(0, 2) = (-1/4, 1/2), its bias 0; output 1 the opposite.
    module = Perceptron([2, 2])
    forward = module.forward if kind == "autograd" else None
    x, y = np.array([[1, 0], [0, 2]], np.float32), np.array([0, 1])
    zero = linear([[0, 0], [0, 0]], [0, 0])
    got = train(module, zero, x, y, TrainSettings(1, 2, 0.1), stream(1), forward=forward).weights
    np.testing.assert_allclose(got["layers.0.weight"], [[0.025, -0.05], [-0.025, 0.05]], rtol=1e-6)
    np.testing.assert_allclose(got["layers.0.bias"], [0, 0], atol=1e-8)


@pytest.mark.parametrize("kind", ["by hand", "autograd"])
def test_momentum_and_decay_by_hand(kind: str) -> None:
    # One class: the gradient of cross-entropy is 0, so only decay moves the weight 1.
    # Step 1: v = 0.1 * 1 = 0.1, w = 1 - 0.5 * 0.1 = 0.95. Step 2: v = 0.5 * 0.1 + 0.1 * 0.95 = 0.145, w = 0.8775.
    module = Perceptron([1, 1])
    forward = module.forward if kind == "autograd" else None
    x, y = np.ones((2, 1), np.float32), np.zeros(2, np.int64)
    settings = TrainSettings(2, 2, 0.5, momentum=0.5, weight_decay=0.1)
    got = train(module, linear([[1]], [1]), x, y, settings, stream(1), forward=forward).weights
    np.testing.assert_allclose(got["layers.0.weight"], [[0.8775]], rtol=1e-6)
    np.testing.assert_allclose(got["layers.0.bias"], [0.8775], rtol=1e-6)


def test_momentum_does_not_survive_the_call() -> None:
    arch, settings = NETWORKS[0], TrainSettings(1, 8, 0.1, momentum=0.9)
    x, y = rows_for(arch, 16)
    weights = initial(arch, stream(2))
    first = train(network(arch), weights, x, y, settings, stream(3)).weights
    again = train(network(arch), weights, x, y, settings, stream(3)).weights
    assert first.whole_digest() == again.whole_digest()


def test_a_part_of_a_module_can_be_trained_alone() -> None:
    arch = NETWORKS[0]
    module = network(arch)
    x, y = rows_for(arch, 16)
    weights = initial(arch, stream(2))
    train(module, weights, x, y, TrainSettings(0, 8, 0.1), stream(3))
    head = weights.slice(["layers.2.weight", "layers.2.bias"])
    body = module.layers[0].weight.detach().clone()
    outcome = train(module, head, x, y, TrainSettings(1, 8, 0.1), stream(3), forward=module)
    assert list(outcome.weights) == list(head)
    assert not np.array_equal(outcome.weights["layers.2.weight"], head["layers.2.weight"])
    assert torch.equal(module.layers[0].weight, body)
    without = train(module, head, x, y, TrainSettings(1, 8, 0.1), stream(3))
    assert without.weights.whole_digest() == outcome.weights.whole_digest()


def test_what_came_in_is_not_changed() -> None:
    arch = NETWORKS[2]
    x, y = rows_for(arch, 16)
    weights = initial(arch, stream(2))
    digest, kept = weights.whole_digest(), x.copy()
    outcome = train(network(arch), weights, x, y, TrainSettings(1, 8, 0.1), stream(3))
    assert Tensors(dict(weights)).whole_digest() == digest != outcome.weights.whole_digest()
    assert np.array_equal(x, kept)
    train(network(arch), weights, x, y, TrainSettings(1, 8, 0.1), stream(4))
    assert Tensors(dict(outcome.weights)).whole_digest() == outcome.weights.whole_digest()


def test_no_rows_leave_the_weights_as_they_are() -> None:
    arch = NETWORKS[0]
    weights = initial(arch, stream(2))
    outcome = train(network(arch), weights, *rows_for(arch, 0), TrainSettings(3, 8, 0.1), stream(3))
    assert outcome.steps == outcome.rows == 0
    assert outcome.weights.whole_digest() == weights.whole_digest()


@pytest.mark.parametrize("change", [{"epochs": -1}, {"batch": 0}, {"lr": -0.1}, {"lr": float("nan")}, {"momentum": 1},
                                    {"weight_decay": -1}])  # fmt: skip
def test_impossible_settings_are_refused(change: dict[str, Any]) -> None:
    with refused(ConfigError, "invalid-setting", *(f"{name} = {value}" for name, value in change.items())):
        TrainSettings(**change)
