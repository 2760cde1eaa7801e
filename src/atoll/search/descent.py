"""Gradient descent on the server: gradients of sub-models averaged into one of the supernet, and a step along it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from atoll.messages import Array, Tensors

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
        shrink = np.float32(min(1.0, self.clip / max(length(gradient), 1e-12)))
        moved: dict[str, Array] = {}
        speeds: dict[str, Array] = {}
        with np.errstate(over="ignore", invalid="ignore"):  # who gets weights that have diverged will find it out
            lr, momentum, decay = np.float32(self.lr), np.float32(self.momentum), np.float32(self.decay)
            for name, values in weights.items():
                slope = decay * values
                if name in gradient:
                    slope += shrink * gradient[name]
                speeds[name] = momentum * velocity[name] + slope
                moved[name] = values - lr * speeds[name]
        return Tensors(moved), Tensors(speeds)


def length(gradient: Mapping[str, Array]) -> float:
    """The Euclidean length of all tensors together; float64, in which no square of a float32 overflows."""
    return math.sqrt(sum(float(np.square(array, dtype=np.float64).sum()) for array in gradient.values()))


def shortened(gradient: Mapping[str, Array], limit: float) -> Gradient:
    """The gradient, shortened to this length if it is longer."""
    shrink = np.float32(min(1.0, limit / max(length(gradient), 1e-12)))
    return {name: array * shrink for name, array in gradient.items()}
