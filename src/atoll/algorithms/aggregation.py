"""Averages of models, folded as the replies stream in: memory for one model, however many clients answer.

Sums are kept in float64. A float32 weight times a row count fits into its 53 bits, so sums of that kind hardly round:
clients that send equal tensors get back the same values exactly (a tensor that did not change keeps its content name
and need not travel again), and the order of replies, which is fixed anyway, has almost no influence.
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
    """The weighted mean of whole models: FedAvg's sum of (n_k / n) * theta_k. Weight 1 each: the plain mean."""

    def __init__(self) -> None:
        self._sums: Sums = {}
        self._dtypes: dict[str, np.dtype[np.generic]] = {}
        self.weight = 0.0

    def add(self, tensors: Mapping[str, Array], weight: float = 1) -> None:
        """Fold one model in. Every model has the same names and shapes."""
        _check_weight(weight)
        if not self._sums:
            self._dtypes = {name: array.dtype for name, array in tensors.items()}
            self._sums = {name: np.zeros(array.shape) for name, array in tensors.items()}
        elif tensors.keys() != self._sums.keys():
            unknown = sorted(tensors.keys() ^ self._sums.keys())
            raise ValueError(f"models of different tensors cannot be averaged: {unknown[:3]} are not in all of them")
        for name, array in tensors.items():
            _check_shape(name, array, self._sums[name].shape)
            self._sums[name] += np.multiply(array, weight, dtype=np.float64)
        self.weight += weight

    def result(self) -> Tensors:
        """The mean of what was added, in the dtypes of the first model."""
        if self.weight == 0:
            raise TooFewReplies(
                "no model to average: no reply was accepted, or all of them have no data", code="too-few-replies"
            )
        return Tensors({name: _rounded(total / self.weight, self._dtypes[name]) for name, total in self._sums.items()})


class PartialMean:
    """Algorithm 3, for clients that hold parts of the master: theta + sum over k of (n_k / n) * (theta_k - theta).

    Filling every reply up with the old master and averaging gives the same, but needs a master per client. With
    average="all" n is the data of all clients accepted this round, which is known only at the end; with "trained" it is
    for every tensor the data of the clients that sent it.
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
        """Fold one client's part in."""
        _check_weight(weight)
        unknown = [name for name in tensors if name not in self._master]
        if unknown:
            raise ValueError(f"{unknown[:3]} are not tensors of the master")
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
        """The new master; tensors that nobody sent are the old ones."""
        if self.weight == 0:
            raise TooFewReplies(
                "no sub-model to average: no reply was accepted, or all of them have no data", code="too-few-replies"
            )
        changed: dict[str, Array] = {}
        for name, total in self._sums.items():
            weight = self.weight if self._average == "all" else self._weights[name]
            if weight > 0:
                old = self._master[name]
                changed[name] = _rounded(old + total / weight, old.dtype)
        return self._master.replaced(changed)


def _rounded(values: npt.NDArray[np.float64], dtype: np.dtype[np.generic]) -> Array:
    """The only rounding to the model's own precision; arithmetic on a tensor of no dimensions gives no array."""
    return np.asarray(values).astype(dtype)


def _check_weight(weight: float) -> None:
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"a weight of {weight} is not possible: use the number of rows, 0 or more")


def _check_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    if array.shape != shape:
        raise ValueError(f"tensor '{name}' has shape {array.shape}, not {shape}")


Gradient = dict[str, npt.NDArray[np.float32]]


class GradientMean:
    """The mean over all replies; a tensor that a reply lacks counts as zero: its operation was not drawn."""

    def __init__(self) -> None:
        self._sums: dict[str, npt.NDArray[np.float64]] = {}
        self.count = 0

    def add(self, gradient: Mapping[str, Array]) -> None:
        """Fold one reply in."""
        for name, array in gradient.items():
            if name in self._sums:
                self._sums[name] += array
            else:
                self._sums[name] = array.astype(np.float64)
        self.count += 1

    def result(self) -> Gradient:
        """What at least one reply had a gradient of."""
        return {name: (total / self.count).astype(np.float32) for name, total in self._sums.items()}


@dataclass(frozen=True)
class Descent:
    """SGD as torch does it: clip by the whole gradient's length, add the decay, then momentum, then the rate."""

    lr: float
    momentum: float
    decay: float
    clip: float

    def step(self, weights: Tensors, gradient: Mapping[str, Array], velocity: Tensors) -> tuple[Tensors, Tensors]:
        """Weights and velocity afterwards. Where there is no gradient, decay and momentum go on."""
        shrink = np.float32(min(1.0, self.clip / max(gradient_norm(gradient), 1e-12)))
        moved: dict[str, Array] = {}
        velocities: dict[str, Array] = {}
        with np.errstate(over="ignore", invalid="ignore"):  # who gets weights that have diverged will find it out
            lr, momentum, decay = np.float32(self.lr), np.float32(self.momentum), np.float32(self.decay)
            for name, values in weights.items():
                update = decay * values
                if name in gradient:
                    update += shrink * gradient[name]
                velocities[name] = momentum * velocity[name] + update
                moved[name] = values - lr * velocities[name]
        return Tensors(moved), Tensors(velocities)


def gradient_norm(gradient: Mapping[str, Array]) -> float:
    """The Euclidean length of all tensors together; float64, in which no square of a float32 overflows."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in gradient.values()))


def clip_gradient(gradient: Mapping[str, Array], limit: float) -> Gradient:
    """The gradient, shortened to this length if it is longer."""
    shrink = np.float32(min(1.0, limit / max(gradient_norm(gradient), 1e-12)))
    return {name: array * shrink for name, array in gradient.items()}
