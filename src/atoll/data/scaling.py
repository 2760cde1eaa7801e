"""From stored numbers to what a network sees: unit range, logarithm, zero mean and unit variance.

`client`     each client by the mean and variance of its own training rows; nothing leaves it
`federated`  all clients by pooled statistics: every client's count, mean and sum of squared deviations of its training
             rows LEAVE THE CLIENT (three numbers a feature), which is why it is a setting
Tables are scaled feature by feature, images channel by channel. A constant feature keeps its width (deviation 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from atoll.data.source import Scale
from atoll.messages import Array

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """How stored rows become float32. `mean` and `deviation` have one row per client, one row for all, or none."""

    logarithm: bool
    mean: Floats
    deviation: Floats

    def apply(self, stored: Array, client: int) -> Floats:
        """The rows of one client, as a fresh array."""
        values = to_float(stored, self.logarithm)
        if len(self.mean):
            row = client if len(self.mean) > 1 else 0
            shape = (1, -1) + (1,) * (values.ndim - 2)
            values -= self.mean[row].reshape(shape)
            values /= self.deviation[row].reshape(shape)
        return values


@dataclass(frozen=True)
class Moments:
    """Count, mean and sum of squared deviations: what variance needs, and what adds up without losing digits."""

    count: int
    mean: Doubles
    squares: Doubles

    def plus(self, other: Moments) -> Moments:
        count = self.count + other.count
        if count == 0:
            return self
        shift = other.mean - self.mean
        mean = self.mean + shift * (other.count / count)
        return Moments(count, mean, self.squares + other.squares + shift**2 * (self.count * other.count / count))

    def deviation(self) -> Doubles:
        """Standard deviation; 1 where the feature is constant up to rounding."""
        variance = self.squares / max(self.count, 1)
        return np.where(variance <= 1e-24 * self.mean**2, 1.0, np.sqrt(variance))


def moments(values: Floats) -> Moments:
    """The moments of one client's rows, per feature (tables) or channel (images)."""
    axes = (0, *range(2, values.ndim))
    wide = values.astype(np.float64)
    count = wide.size // wide.shape[1]
    if count == 0:
        return Moments(0, np.zeros(wide.shape[1]), np.zeros(wide.shape[1]))
    mean = wide.mean(axis=axes)
    centred = wide - mean.reshape((1, -1) + (1,) * (wide.ndim - 2))
    return Moments(count, mean, (centred**2).sum(axis=axes))


def fit(scale: Scale, logarithm: bool, clients: int, training: Callable[[int], Array]) -> Scaling:
    """Statistics over the clients' training rows; `training(i)` gives the stored ones of client `i`."""
    if scale == "none":
        nothing = np.zeros((0, 0), dtype=np.float32)
        return Scaling(logarithm, nothing, nothing)
    each = (moments(to_float(training(client), logarithm)) for client in range(clients))
    return scaling_of([pooled(each)] if scale == "federated" else list(each), logarithm)


def pooled(each: Iterable[Moments]) -> Moments:
    """The moments of all clients' rows together; the order of the clients decides the last bits."""
    return reduce(Moments.plus, each)


def scaling_of(found: Sequence[Moments], logarithm: bool) -> Scaling:
    """The scaling by these moments: one row of them for all clients, or one a client."""
    mean = np.array([one.mean for one in found], dtype=np.float32)
    deviation = np.array([one.deviation() for one in found], dtype=np.float32)
    return Scaling(logarithm, mean, np.where(deviation > 0, deviation, np.float32(1)))


def to_float(stored: Array, logarithm: bool) -> Floats:
    """A fresh float32 copy. Images of unsigned integers are divided by their type's largest value; the logarithm
    is log(1 + |x|) with the sign of x."""
    if stored.ndim == 4 and stored.dtype.kind == "u":
        values: Floats = np.divide(stored, np.float32(np.iinfo(stored.dtype).max), dtype=np.float32)
    else:
        values = np.array(stored, dtype=np.float32, order="C")
    if logarithm:
        values = np.copysign(np.log1p(np.abs(values)), values)
    return values
