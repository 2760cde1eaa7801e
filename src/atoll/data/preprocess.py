"""From stored numbers to the input of a network: unit range, logarithm, zero mean and unit variance.

`client`     each client by the mean and variance of its own training rows; nothing leaves the client
`federated`  all clients by pooled statistics: every client's count, mean and sum of squared deviations of its training
             rows LEAVE THE CLIENT (three numbers per feature), which is why it is a setting
Tables are scaled feature by feature, images channel by channel. A constant feature is divided by 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.data.partition import Indices
from atoll.data.source import Missing
from atoll.errors import DataError
from atoll.preparation.value import Scale, Statistics

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
    """Count, mean and sum of squared deviations, which can be added without loss of precision."""

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
    """Statistics over the clients' training rows; `training(i)` returns those of client `i` as stored."""
    if scale == "none":
        nothing = np.zeros((0, 0), dtype=np.float32)
        return Scaling(logarithm, nothing, nothing)
    each = (moments(to_float(training(client), logarithm)) for client in range(clients))
    return scaling_of([combined(each)] if scale == "federated" else list(each), logarithm)


def combined(each: Iterable[Moments]) -> Moments:
    """The moments of all clients' rows together; the order of the clients decides the last bits."""
    return reduce(Moments.plus, each)


def scaling_of(found: Sequence[Moments], logarithm: bool) -> Scaling:
    """The scaling by these moments: one row for all clients, or one row per client."""
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


def statistics(fill: Array | None, mean: Array, deviation: Array) -> Statistics:
    """The statistics of a preparation; `mean` and `deviation` have one row, or none."""
    return Statistics(
        fill=None if fill is None else fill.tolist(),
        mean=mean[0].tolist() if len(mean) else [],
        deviation=deviation[0].tolist() if len(deviation) else [],
    )


def fill_values(x: Array, rows: Indices, bounds: Indices, rule: Missing) -> Floats:
    """Each client's value for gaps in every feature, one row per client; no rows if gaps are refused.

    `mean` and `median` are over the client's own training rows; a feature without a value there becomes 0.
    """
    width = math.prod(x.shape[1:])
    if rule == "refuse" or x.dtype.kind != "f":
        return np.zeros((0, width), np.float32)
    fill = np.zeros((len(bounds), width), np.float32)
    for client in range(len(bounds) if rule != "zero" else 0):
        fill[client] = _centre(x[rows[bounds[client, 0] : bounds[client, 1]]].reshape(-1, width), rule)
    return fill


def fill_missing(
    x: Array, rows: Indices, bounds: Indices, names: list[str], fill: Floats, features: tuple[str, ...]
) -> Array:
    """`x` with each client's fill values in place of NaN; `x` itself if it has none."""
    if x.dtype.kind != "f":
        return x
    flat_x: Array = x.reshape(len(x), -1)
    gaps: Array = np.isnan(flat_x)
    holes = np.any(gaps, axis=1)
    if not holes.any():
        return x
    if not len(fill):
        raise DataError(_refusal(gaps, rows, bounds, names, features), code="missing-value")
    filled = x.copy()
    flat = filled.reshape(len(x), -1)
    for client in range(len(bounds)):
        own = rows[bounds[client, 0] : bounds[client, 3]]
        broken = own[holes[own]]
        flat[broken] = np.where(gaps[broken], fill[client], flat[broken])
    return filled


def _centre(train: Array, rule: Missing) -> Array:
    """Mean or median of every feature over its known values; 0 if it has none."""
    known = ~np.isnan(train)
    centre = np.zeros(train.shape[1], dtype=train.dtype)
    some = known.any(axis=0)
    centre[some] = (np.nanmean if rule == "mean" else np.nanmedian)(train[:, some], axis=0)
    return centre


def _refusal(gaps: Array, rows: Indices, bounds: Indices, names: list[str], features: tuple[str, ...]) -> str:
    held = rows[np.isin(rows, np.flatnonzero(gaps.any(axis=1)))]
    row = int(held[0]) if len(held) else int(np.flatnonzero(gaps.any(axis=1))[0])
    column = int(np.flatnonzero(gaps[row])[0])
    where = f"'{features[column]}'" if column < len(features) else f"number {column}"
    place = np.flatnonzero(rows == row)
    client = int(np.searchsorted(bounds[:, 3], place[0], side="right")) if len(place) else -1
    who = f"client '{names[client]}'" if client >= 0 else "a client"
    return (
        f"{who} has missing values, the first in feature {where}; "
        "set data.missing to 'mean', 'median' or 'zero' to fill them, or remove these rows"
    )
