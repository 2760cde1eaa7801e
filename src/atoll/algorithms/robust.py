"""Robust averages of models and gradients: what a minority of clients sends cannot move them far.

    trimmed_mean       coordinate by coordinate, the mean without the largest and the smallest values
                       (Yin et al., "Byzantine-Robust Distributed Learning", 2018)
    median             coordinate by coordinate
    geometric_median   the point with the smallest sum of distances, by Weiszfeld's iteration
                       (Pillutla et al., "Robust Aggregation for Federated Learning", 2022)

Before it, updates may be clipped to a multiple of their median length. All clients count alike. Replies are held until
the end, so memory grows with the number of clients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array, Tensors
from atoll.errors import TooFewReplies

Rule = Literal["mean", "trimmed_mean", "median", "geometric_median"]
Floats = npt.NDArray[np.float64]
FEWEST = 3  # with two clients no rule can tell which one is wrong
STEPS, TOLERANCE = 100, 1e-7  # of Weiszfeld's iteration


@dataclass(frozen=True)
class Averaging:
    """How updates become one. `trim` is the share that a trimmed mean leaves out at each end."""

    rule: Rule = "mean"
    trim: float = 0.2
    clip: float | None = None  # longest update, as a multiple of the median length; None: as they are

    @property
    def plain(self) -> bool:
        return self.rule == "mean" and self.clip is None

    def of(self, rows: Floats) -> Floats:
        """One vector from the rows of a matrix."""
        if self.rule == "trimmed_mean":
            return trimmed_mean(rows, self.trim)
        if self.rule == "median":
            return np.asarray(np.median(rows, axis=0))
        return geometric_median(rows) if self.rule == "geometric_median" else np.asarray(rows.mean(axis=0))


def trimmed_mean(rows: Floats, trim: float) -> Floats:
    """The mean of each column without the `trim` share of its values at each end, rounded up; one value remains."""
    count = len(rows)
    left_out = min(math.ceil(trim * count - 1e-9), (count - 1) // 2)
    return np.asarray(np.sort(rows, axis=0)[left_out : count - left_out].mean(axis=0))


def geometric_median(rows: Floats) -> Floats:
    """The point whose distances to all rows have the smallest sum."""
    centre = np.median(rows, axis=0)
    for _ in range(STEPS):
        distances = np.sqrt(np.square(rows - centre).sum(axis=1))
        scale = float(np.median(distances))
        weights = 1.0 / np.maximum(distances, max(1e-12, 1e-6 * scale))
        moved = weights @ rows / weights.sum()
        shift = float(np.sqrt(np.square(moved - centre).sum()))
        centre = moved
        if shift <= TOLERANCE * max(scale, 1e-30):
            break
    return np.asarray(centre)


class RobustMean:
    """Takes models one by one, as `Mean` does. `start` is what all of them started from; without it they are changes.

    `partial`: models are parts of `start`, and each tensor is averaged over those that hold it. What fewer than three
    hold stays as it was: the whole model, or those tensors. `too_few` is called with the number of models, or tensors.
    """

    def __init__(
        self,
        averaging: Averaging,
        start: Tensors | None,
        partial: bool = False,
        too_few: Callable[[int], None] = lambda number: None,
    ) -> None:
        self._averaging, self._start, self._partial, self._too_few = averaging, start, partial, too_few
        self._dtypes: dict[str, np.dtype[np.generic]] = {}
        self._changes: list[dict[str, Floats]] = []
        self.weight = 0.0

    def add(self, tensors: Mapping[str, Array], weight: float = 1) -> None:
        """Add one model. A weight of 0 leaves it out; otherwise all count alike."""
        if weight <= 0:
            return
        start = self._start
        self._changes.append(
            {
                name: array.astype(np.float64) if start is None else np.subtract(array, start[name], dtype=np.float64)
                for name, array in tensors.items()
            }
        )
        for name, array in tensors.items():
            self._dtypes.setdefault(name, array.dtype)
        self.weight += weight

    def result(self) -> Tensors:
        """The average; with `partial` all of `start`, else the tensors that were added. Of fewer than three models
        `start` itself, or no changes."""
        count = len(self._changes)
        if count == 0:
            raise TooFewReplies(
                "no model to average: no reply was accepted, or no accepted client has data", code="too-few-replies"
            )
        if count < FEWEST and not self._partial:
            self._too_few(count)
            return Tensors({}) if self._start is None else self._start
        changes = self.changes()
        if self._start is None:
            return Tensors({name: _rounded(change, self._dtypes[name]) for name, change in changes.items()})
        new = {name: _rounded(self._start[name] + change, self._dtypes[name]) for name, change in changes.items()}
        return Tensors({name: new.get(name, array) for name, array in self._start.items()} if self._partial else new)

    def changes(self) -> dict[str, Floats]:
        """The average change of every tensor that at least three updates hold."""
        updates = self._clipped()
        # Sorted: sums must not depend on an order that a resumed run may not keep.
        names = sorted(name for name in self._dtypes if sum(name in update for update in updates) >= FEWEST)
        if len(names) < len(self._dtypes):
            self._too_few(len(self._dtypes) - len(names))
        if self._averaging.rule == "geometric_median" and not self._partial:
            return self._together(updates, names)
        found: dict[str, Floats] = {}
        for name in names:
            own = [update[name] for update in updates if name in update]
            rows = np.stack([array.reshape(-1) for array in own])
            found[name] = self._averaging.of(rows).reshape(own[0].shape)
        return found

    def _together(self, updates: list[dict[str, Floats]], names: list[str]) -> dict[str, Floats]:
        """All tensors as one vector: a distance is that of whole models."""
        rows = np.stack([np.concatenate([update[name].reshape(-1) for name in names]) for update in updates])
        whole, place, found = self._averaging.of(rows), 0, {}
        for name in names:
            shape = updates[0][name].shape
            size = math.prod(shape)
            found[name] = whole[place : place + size].reshape(shape)
            place += size
        return found

    def _clipped(self) -> list[dict[str, Floats]]:
        """The updates, scaled down to the longest that is allowed. Lengths are per value: parts differ in size."""
        clip = self._averaging.clip
        if clip is None:
            return self._changes
        lengths = [_length(update) for update in self._changes]
        limit = clip * float(np.median(lengths))
        return [
            {name: array * (limit / length) for name, array in update.items()} if length > limit else update
            for update, length in zip(self._changes, lengths, strict=True)
        ]


class RobustGradient(RobustMean):
    """Takes gradients of sub-models, as `GradientMean` does: a tensor that is missing in a reply counts as zero."""

    def __init__(self, averaging: Averaging, too_few: Callable[[int], None] = lambda number: None) -> None:
        super().__init__(averaging, None, True, too_few)
        self.count = 0

    def add(self, tensors: Mapping[str, Array], weight: float = 1) -> None:
        super().add(tensors, weight)
        self.count += 1

    def gradient(self) -> dict[str, npt.NDArray[np.float32]]:
        held = {name: sum(name in update for update in self._changes) for name in self._dtypes}
        changes = self.changes()
        return {name: (change * (held[name] / self.count)).astype(np.float32) for name, change in changes.items()}


def _length(update: Mapping[str, Floats]) -> float:
    squares = sum(float(np.dot(update[name].reshape(-1), update[name].reshape(-1))) for name in sorted(update))
    return math.sqrt(squares / max(1, sum(array.size for array in update.values())))


def _rounded(values: Floats, dtype: np.dtype[np.generic]) -> Array:
    return np.asarray(values).astype(dtype)
