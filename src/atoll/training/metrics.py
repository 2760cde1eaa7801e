"""Metrics from integer counts: the server adds confusion matrices and computes these once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Confusion = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ConfusionCounts:
    """The confusion matrix of a network, `confusion[true, predicted]`, and its cross-entropy summed over the rows.

    Under `[privacy]` only `[[correct, wrong]]` is known, and no loss.
    """

    confusion: Confusion
    loss: float = 0.0

    @property
    def private(self) -> bool:
        return len(self.confusion) != len(self.confusion.T)

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
        return cls(np.asarray(payload["confusion"], np.int64), float(payload.get("loss", 0.0)))


Objective = Literal["error", "balanced_error", "weighted_f1"]


def objective_error(objective: Objective, confusion: Confusion) -> float:
    """What a search minimises, between 0 and 1: the share of wrong rows, the mean of the classes' shares of wrong rows,
    or 1 - weighted F1. NaN without rows."""
    if objective == "error":
        return 1.0 - accuracy(confusion)
    if objective == "weighted_f1":
        return 1.0 - weighted_f1(confusion)
    rows = confusion.sum(axis=1)
    present = rows > 0
    return float(1.0 - (np.diagonal(confusion)[present] / rows[present]).mean()) if present.any() else float("nan")


MOST_CLASSES = 50  # of a confusion matrix that is kept in results


def result_metrics(confusion: Confusion) -> dict[str, Any]:
    """A network on test rows, for results. The baseline is the answer that is right most often if it never changes.

    Of private counts, `[[correct, wrong]]`, only the error is known, with noise.
    """
    rows = int(confusion.sum())
    if ConfusionCounts(confusion).private:
        return {"test_error": 1.0 - accuracy(confusion), "test_rows": rows, "noisy": True}
    found: dict[str, Any] = {
        "test_error": 1.0 - accuracy(confusion),
        "test_f1": weighted_f1(confusion),
        "test_rows": rows,
        "baseline_error": 1.0 - int(confusion.sum(axis=1).max()) / max(rows, 1),
    }
    if len(confusion) <= MOST_CLASSES:
        found["confusion"] = confusion.tolist()
    return found


def class_rates(confusion: Confusion) -> list[dict[str, float]]:
    """Of every class: sensitivity, specificity, PPV and NPV (NaN where nothing of the kind occurs), and its rows."""
    rates = []
    total = int(confusion.sum())
    for place in range(len(confusion)):
        hits = int(confusion[place, place])
        missed, false = int(confusion[place].sum()) - hits, int(confusion[:, place].sum()) - hits
        rest = total - hits - missed - false
        rates.append(
            {
                "sensitivity": _share(hits, hits + missed),
                "specificity": _share(rest, rest + false),
                "ppv": _share(hits, hits + false),
                "npv": _share(rest, rest + missed),
                "rows": hits + missed,
            }
        )
    return rates


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")


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
