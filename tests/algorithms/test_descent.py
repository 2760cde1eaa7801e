"""Descent on the server: means of partial gradients by hand, the step against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from atoll.algorithms.aggregation import Descent, GradientMean, clip_gradient, gradient_norm
from atoll.core.messages import Tensors
from atoll.rng import stream


def test_a_missing_tensor_counts_as_zero() -> None:
    mean = GradientMean()
    mean.add({"a": np.array([2.0], np.float32), "b": np.array([4.0], np.float32)})
    mean.add({"a": np.array([4.0], np.float32)})
    found = mean.gradient()
    assert mean.count == 2 and found["a"].tolist() == [3.0] and found["b"].tolist() == [2.0]
    assert found["a"].dtype == np.float32


def test_what_was_added_is_not_changed() -> None:
    first = np.array([1.0], np.float32)
    mean = GradientMean()
    for _ in range(2):
        mean.add({"a": first})
    assert mean.gradient()["a"].tolist() == [1.0] and first.tolist() == [1.0]


def test_lengths_by_hand() -> None:
    gradient = {"a": np.array([3.0], np.float32), "b": np.array([[4.0]], np.float32)}
    assert gradient_norm(gradient) == 5.0
    assert {name: array.tolist() for name, array in clip_gradient(gradient, 2.5).items()} == {"a": [1.5], "b": [[2.0]]}
    assert clip_gradient(gradient, 6.0)["a"].tolist() == [3.0]
    assert gradient_norm({"a": np.array([3e38], np.float32)}) == pytest.approx(3e38)  # its square is no float32


def test_the_length_of_a_gradient_is_the_same_in_any_order() -> None:
    rng = np.random.default_rng(1)
    gradient = {str(number): rng.normal(size=3).astype(np.float32) for number in range(40)}
    orders = [{str(number): gradient[str(number)] for number in rng.permutation(40)} for _ in range(20)]
    assert {gradient_norm(order) for order in orders} == {gradient_norm(gradient)}


def test_steps_are_torchs() -> None:
    rng = stream(1, "descent")
    weights = Tensors({name: rng.normal(size=4).astype(np.float32) for name in ("a", "b")})
    parameters = {name: torch.tensor(array, requires_grad=True) for name, array in weights.items()}
    oracle = torch.optim.SGD(parameters.values(), lr=0.1, momentum=0.9, weight_decay=0.01)
    velocity = Tensors({name: np.zeros_like(array) for name, array in weights.items()})
    descent = Descent(lr=0.1, momentum=0.9, decay=0.01, clip=2.0)
    for size, names in ((1.0, ("a", "b")), (50.0, ("a", "b")), (1.0, ("a",))):  # the last: `b` was not drawn
        gradient = {name: (size * rng.normal(size=4)).astype(np.float32) for name in names}
        weights, velocity = descent.step(weights, gradient, velocity)
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(gradient.get(name, np.zeros(4, np.float32)))
        torch.nn.utils.clip_grad_norm_(list(parameters.values()), 2.0)
        oracle.step()
        for name, parameter in parameters.items():
            assert np.allclose(weights[name], parameter.detach().numpy(), atol=1e-6), name
