"""Metrics from integer counts: the server adds confusion matrices and computes these once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Confusion = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ConfusionCounts:
    """The confusion matrix of a network, `confusion[true, predicted]`, and its cross-entropy summed over the rows."""

    confusion: Confusion
    loss: float = 0.0

    @property
    def rows(self) -> int:
        return int(self.confusion.sum())

    @property
    def correct(self) -> int:
        return int(np.trace(self.confusion))

    def __add__(self, other: ConfusionCounts) -> ConfusionCounts:
        return ConfusionCounts(self.confusion + other.confusion, self.loss + other.loss)

    @classmethod
    def zero(cls, classes: int) -> ConfusionCounts:
        return cls(np.zeros((classes, classes), np.int64))

    def payload(self) -> dict[str, Any]:
        """The fields of a reply's payload."""
        return {"confusion": self.confusion, "loss": self.loss}

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> ConfusionCounts:
        return cls(np.asarray(payload["confusion"], np.int64), float(payload["loss"]))


def accuracy(confusion: Confusion) -> float:
    """Correct rows over all rows; NaN without rows."""
    rows = int(confusion.sum())
    return int(np.trace(confusion)) / rows if rows else float("nan")


def class_f1(confusion: Confusion) -> npt.NDArray[np.float64]:
    """F1 of every class: 2 hits / (true + predicted). A class that neither occurs nor is predicted scores 0."""
    hits = np.diagonal(confusion).astype(np.float64)
    total = (confusion.sum(axis=0) + confusion.sum(axis=1)).astype(np.float64)
    scores: npt.NDArray[np.float64] = np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
    return scores


def weighted_f1(confusion: Confusion) -> float:
    """The mean of the classes' F1, weighted by the number of true rows of each class; NaN without rows."""
    support = confusion.sum(axis=1)
    rows = int(support.sum())
    return float(class_f1(confusion) @ support / rows) if rows else float("nan")
