"""Figures from confusion matrices, against hand sums and scikit-learn."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from atoll.training.metrics import ConfusionCounts, accuracy, weighted_f1


def confusion_of(true: list[int], predicted: list[int], classes: int) -> np.ndarray:
    table = np.zeros((classes, classes), np.int64)
    np.add.at(table, (true, predicted), 1)
    return table


def test_by_hand() -> None:
    # class 0: 3 true, 2 found, 3 predicted: F1 = 4/6; class 1: 1 true, 0 found, 1 predicted: 0
    table = np.array([[2, 1], [1, 0]])
    assert accuracy(table) == 0.5
    assert weighted_f1(table) == pytest.approx(2 / 3 * 3 / 4)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=60))
def test_equals_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    true, predicted = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    table = confusion_of(true, predicted, 5)
    assert weighted_f1(table) == pytest.approx(f1_score(true, predicted, average="weighted", zero_division=0))


def test_no_rows_have_no_figures() -> None:
    table = np.zeros((3, 3), np.int64)
    assert math.isnan(accuracy(table))
    assert math.isnan(weighted_f1(table))


def test_counts_add_up_and_travel() -> None:
    one, two = ConfusionCounts(np.array([[1, 2], [3, 4]]), 1.5), ConfusionCounts(np.array([[1, 0], [0, 1]]), 0.25)
    total = one + two + ConfusionCounts.zero(2)
    assert (total.correct, total.rows, total.loss) == (7, 12, 1.75)
    back = ConfusionCounts.from_payload(total.payload())
    assert np.array_equal(back.confusion, total.confusion)
    assert back.loss == total.loss
