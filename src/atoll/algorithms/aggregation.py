"""Streaming averages of models and gradients, and the server's SGD step.

Replies are added one at a time, so memory is that of one model for any number of clients. Sums are float64. A float32
weight times a row count usually fits into 53 bits, so these sums hardly round: if all clients send equal tensors, the
mean is exactly that tensor, its content name does not change, and it need not be sent again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array, Tensors
from atoll.errors import ConfigError, TooFewReplies, nearest

Average = Literal["all", "trained"]
Sums = dict[str, npt.NDArray[np.float64]]


class Mean:
    """The weighted mean of whole models: FedAvg's sum of (n_k / n) * theta_k. With equal weights, the plain mean."""

    def __init__(self) -> None:
        self._sums: Sums = {}
        self._dtypes: dict[str, np.dtype[np.generic]] = {}
        self.weight = 0.0

    def add(self, tensors: Mapping[str, Array], weight: float = 1) -> None:
        """Add one model. All models must have the same tensor names and shapes."""
        _check_weight(weight)
        if not self._sums:
            self._dtypes = {name: array.dtype for name, array in tensors.items()}
            self._sums = {name: np.zeros(array.shape) for name, array in tensors.items()}
        elif tensors.keys() != self._sums.keys():
            differing = sorted(tensors.keys() ^ self._sums.keys())
            raise ValueError(
                f"models with different tensors cannot be averaged: {differing[:3]} are missing in some of them"
            )
        for name, array in tensors.items():
            _check_shape(name, array, self._sums[name].shape)
            self._sums[name] += np.multiply(array, weight, dtype=np.float64)
        self.weight += weight

    def result(self) -> Tensors:
        """The mean of all added models, in the dtypes of the first one."""
        if self.weight == 0:
            raise TooFewReplies(
                "no model to average: no reply was accepted, or no accepted client has data", code="too-few-replies"
            )
        return Tensors({name: _rounded(total / self.weight, self._dtypes[name]) for name, total in self._sums.items()})


class PartialMean:
    """Algorithm 3, for clients that train parts of the master: theta + sum over k of (n_k / n) * (theta_k - theta).

    Completing every reply with the old master and averaging gives the same result, but needs one master per client.
    With average="all", n is the number of rows of all clients accepted this round, which is known only at the end.
    With "trained", n is computed per tensor from the clients that sent that tensor.
    """

    def __init__(self, master: Tensors, average: Average = "all") -> None:
        if average not in get_args(Average):
            raise ConfigError(
                f"unknown average '{average}'; {nearest(str(average), get_args(Average))}", code="unknown-average"
            )
        self._master = master
        self._average = average
        self._sums: Sums = {}
        self._weights: dict[str, float] = {}
        self.weight = 0.0

    def add(self, tensors: Mapping[str, Array], weight: float = 1) -> None:
        """Add one client's part of the master."""
        _check_weight(weight)
        unknown = [name for name in tensors if name not in self._master]
        if unknown:
            raise ValueError(f"the master has no tensors {unknown[:3]}")
        for name, array in tensors.items():
            old = self._master[name]
            _check_shape(name, array, old.shape)
            change = np.asarray(np.subtract(array, old, dtype=np.float64) * weight)
            if name in self._sums:
                self._sums[name] += change
            else:
                self._sums[name] = change
            self._weights[name] = self._weights.get(name, 0.0) + weight
        self.weight += weight

    def result(self) -> Tensors:
        """The new master. Tensors that no client sent are unchanged."""
        if self.weight == 0:
            raise TooFewReplies(
                "no sub-model to average: no reply was accepted, or no accepted client has data", code="too-few-replies"
            )
        changed: dict[str, Array] = {}
        for name, total in self._sums.items():
            weight = self.weight if self._average == "all" else self._weights[name]
            if weight > 0:
                old = self._master[name]
                changed[name] = _rounded(old + total / weight, old.dtype)
        return self._master.replaced(changed)


def with_momentum(before: Tensors, mean: Tensors, velocity: Tensors, momentum: float) -> tuple[Tensors, Tensors]:
    """Server momentum, FedAvgM (Hsu et al., "Measuring the Effects of Non-Identical Data Distribution for Federated
    Visual Classification", 2019): v <- momentum * v + (mean - theta), theta <- theta + v. The new weights and the new
    velocity, which is empty at first; without momentum the mean itself, to the bit. A mean that is `before` itself was
    made of too few models: nothing moves.
    """
    if not momentum or mean is before:
        return mean, velocity
    moved: dict[str, Array] = {}
    velocities: dict[str, Array] = {}
    with np.errstate(over="ignore", invalid="ignore"):  # the loop checks for divergence
        for name, old in before.items():
            change = np.subtract(mean[name], old, dtype=np.float64)
            if name in velocity:
                change = change + momentum * velocity[name].astype(np.float64)
            velocities[name] = _rounded(change, old.dtype)
            moved[name] = _rounded(old.astype(np.float64) + velocities[name], old.dtype)
    return Tensors(moved), Tensors(velocities)


def _rounded(values: npt.NDArray[np.float64], dtype: np.dtype[np.generic]) -> Array:
    """Round once to the model's precision. `asarray`, because NumPy turns zero-dimensional results into scalars."""
    return np.asarray(values).astype(dtype)


def _check_weight(weight: float) -> None:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"weight = {weight}: a weight must be finite and at least 0; use the number of rows")


def _check_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"tensor '{name}' has shape {array.shape}, expected {shape}")


Gradient = dict[str, npt.NDArray[np.float32]]


class GradientMean:
    """The mean over all replies. A tensor missing in a reply counts as zero: its operation was not sampled."""

    def __init__(self) -> None:
        self._sums: dict[str, npt.NDArray[np.float64]] = {}
        self.count = 0

    def add(self, gradient: Mapping[str, Array]) -> None:
        """Add the gradient of one reply."""
        for name, array in gradient.items():
            if name in self._sums:
                self._sums[name] += array
            else:
                self._sums[name] = array.astype(np.float64)
        self.count += 1

    def gradient(self) -> Gradient:
        """The mean gradient of every tensor that occurred in at least one reply."""
        return {name: (total / self.count).astype(np.float32) for name, total in self._sums.items()}


@dataclass(frozen=True)
class Descent:
    """SGD in torch's order: clip by the global gradient norm, add weight decay, then momentum and learning rate."""

    lr: float
    momentum: float
    decay: float
    clip: float

    def step(self, weights: Tensors, gradient: Mapping[str, Array], velocity: Tensors) -> tuple[Tensors, Tensors]:
        """New weights and velocity. Tensors without a gradient still get weight decay and momentum."""
        shrink = np.float32(min(1.0, self.clip / max(gradient_norm(gradient), 1e-12)))
        moved: dict[str, Array] = {}
        velocities: dict[str, Array] = {}
        with np.errstate(over="ignore", invalid="ignore"):  # callers check for divergence
            lr, momentum, decay = np.float32(self.lr), np.float32(self.momentum), np.float32(self.decay)
            for name, values in weights.items():
                update = decay * values
                if name in gradient:
                    update += shrink * gradient[name]
                velocities[name] = momentum * velocity[name] + update
                moved[name] = values - lr * velocities[name]
        return Tensors(moved), Tensors(velocities)


def gradient_norm(gradient: Mapping[str, Array]) -> float:
    """The Euclidean norm over all tensors, in float64, where the square of a float32 cannot overflow. The order of the
    tensors does not matter: a reply that waited in a checkpoint has them in another one."""
    return math.sqrt(math.fsum(float(np.square(array, dtype=np.float64).sum()) for array in gradient.values()))


def clip_gradient(gradient: Mapping[str, Array], limit: float) -> Gradient:
    """The gradient, scaled down to norm `limit` if its norm is larger."""
    shrink = np.float32(min(1.0, limit / max(gradient_norm(gradient), 1e-12)))
    return {name: array * shrink for name, array in gradient.items()}
