"""Rows under `[privacy]`: each is prepared by itself, and tables are scaled by noisy sums of bounded values.

A client's sums for `scale = "federated"` leave it once. For every input the user gives bounds; a value is clipped to
them and moved to the range -1 to 1. With t for that value, a row adds t and t^2 - 1/2 to two sums of each input. These
have t^2 + (t^2 - 1/2)^2 <= 5/4 together, so one row changes all sums of d inputs by sqrt(5 d / 4) at most, as an L2
norm. That is their sensitivity, in units of which `noise` is given. The number of rows is public.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from atoll.data.preprocess import Doubles, Floats, Moments, to_float
from atoll.data.split import Blocks
from atoll.errors import ConfigError, nearest
from atoll.preparation.value import Preparation, RawColumn
from atoll.rng import Generator, stream

# In place of a data set's own default that looks at the classes: which part a row is in must say nothing of any label.
SPLITS: dict[Blocks, Blocks] = {"random": "shuffled", "by_class": "contiguous"}
PARTS = {"month": (1.0, 12.0), "weekday": (0.0, 6.0), "hour": (0.0, 23.0)}  # of dates
LEAST_VARIANCE = 1e-4  # of values between -1 and 1: noise may make it negative, and rows are divided by its root


@dataclass(frozen=True)
class PrivateRows:
    """What `[privacy]` says of the preparation of rows. `bounds`: the lowest and the highest value of columns."""

    bounds: Mapping[str, Sequence[float]] = field(default_factory=dict)
    noise: float = 10.0

    def moments(self, values: Floats, preparation: Preparation, logarithm: bool, rng: Generator) -> Moments:
        """The noisy moments of one client's training rows, as they leave it. `rng` must be secret."""
        low, high = self.limits(preparation, logarithm)
        count, width = values.shape
        sums = bounded_sums(values, low, high)
        sums += self.noise * sensitivity(width) * rng.standard_normal(sums.shape)
        # From here on nothing looks at the rows.
        mean = np.clip(sums[0] / max(count, 1), -1, 1)
        variance = np.clip(sums[1] / max(count, 1) + 0.5 - mean**2, LEAST_VARIANCE, 1)
        half = (high - low) / 2
        return Moments(count, low + half + half * mean, count * variance * half**2)

    def simulated(self, values: Floats, preparation: Preparation, logarithm: bool, seed: int, client: str) -> Moments:
        """The same for a simulated client. Its noise follows from the seed, but is another one for other rows or
        bounds: the difference of two runs is not that of their rows."""
        about = hashlib.sha256(np.ascontiguousarray(values).tobytes())
        about.update(repr((self.noise, sorted((name, tuple(own)) for name, own in self.bounds.items()))).encode())
        rng = stream(seed, "noise", "moments", client, about.hexdigest())
        return self.moments(values, preparation, logarithm, rng)

    def limits(self, preparation: Preparation, logarithm: bool) -> tuple[Doubles, Doubles]:
        """The bounds of every input, after the logarithm. A column without bounds is a `ConfigError`."""
        if preparation.kind == "image":
            raise ConfigError(
                "[privacy]: data.scale = 'federated' is for tables only; set data.scale = 'none' for images",
                code="privacy-scaling",
            )
        columns = preparation.columns
        known = [name for column in columns for name in _bounded(column)]
        for name in self.bounds:
            if name not in known:
                raise ConfigError(
                    f"privacy.bounds.{name}: no column of numbers has this name; {nearest(name, known)}",
                    code="privacy-bounds",
                )
        own = [pair for column in columns for pair in self._of_column(column)]
        steps = 1 if preparation.window is None else preparation.window.steps
        found = to_float(np.array(own * steps, dtype=np.float64).T, logarithm).astype(np.float64)
        return found[0], found[1]

    def _of_column(self, column: RawColumn) -> list[tuple[float, float]]:
        if column.kind == "category":
            codes = (0.0, 1.0) if column.coding == "onehot" else (0.0, max(1.0, len(column.words) - 1.0))
            return [codes] * len(column.inputs)
        given = []
        for name in column.values:
            part = next((own for own in PARTS if name == f"{column.name} ({own})" and column.kind == "date"), None)
            if part is not None:
                given.append(PARTS[part])
            elif name in self.bounds:
                low, high = self.bounds[name]
                given.append((float(low), float(high)))
            else:
                raise ConfigError(
                    f"[privacy]: data.scale = 'federated' needs bounds of column '{name}'; write for instance "
                    f"privacy.bounds.'{name}' = [0, 100], from what is known of it and not from the rows, or scale "
                    "the columns beforehand and set data.scale = 'none'",
                    code="privacy-bounds",
                )
        return given


def _bounded(column: RawColumn) -> list[str]:
    """The names under which bounds of this column may be given."""
    if column.kind == "category":
        return []
    return [name for name in column.values if column.kind == "number" or name == f"{column.name} (days)"]


def bounded_sums(values: Floats, low: Doubles, high: Doubles) -> Doubles:
    """Two sums for each input over these rows, of what the module's text says. A value that is not a number counts as
    the middle."""
    half = (high - low) / 2
    inside = np.clip((values - (low + half)) / half, -1, 1)
    t = np.where(np.isnan(inside), 0.0, inside)
    found: Doubles = np.stack([t.sum(axis=0), (t**2 - 0.5).sum(axis=0)])
    return found


def sensitivity(inputs: int) -> float:
    """By how much one row changes the sums of this many inputs at most (L2)."""
    return math.sqrt(1.25 * inputs)
