"""Robust averages by hand, and how far a minority can move them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll.algorithms.aggregation import with_momentum
from atoll.algorithms.robust import (
    Averaging,
    RobustGradient,
    RobustMean,
    Rule,
    geometric_median,
    trimmed_mean,
)
from atoll.core.messages import Tensors
from atoll.errors import TooFewReplies
from atoll.rng import stream
from refusals import refused

ROBUST: tuple[Rule, ...] = ("trimmed_mean", "median", "geometric_median")


def column(*values: float) -> Any:
    return np.array(values)[:, None]


def test_a_trimmed_mean_by_hand() -> None:
    """A fifth of five values is one at each end; of six it is rounded up to two; of three one remains."""
    assert trimmed_mean(column(1, 2, 3, 4, 1000), 0.2)[0] == 3.0
    assert trimmed_mean(column(-1e9, 2, 3, 5, 6, 1e9), 0.2)[0] == 4.0
    assert trimmed_mean(column(1, 5, 1e9), 0.4)[0] == 5.0


def test_a_geometric_median_by_hand() -> None:
    """On a line it is the median. The corners of a square have their centre, a triangle of 120 degrees its middle."""
    assert geometric_median(column(0, 1, 100))[0] == pytest.approx(1.0, abs=1e-4)
    square = np.array([[0.0, 0], [0, 2], [2, 0], [2, 2]])
    assert geometric_median(square) == pytest.approx([1.0, 1.0])
    angles = np.array([0.0, 2 * np.pi / 3, 4 * np.pi / 3])
    triangle = np.stack([np.cos(angles), np.sin(angles)], axis=1) * 5 + [3, 4]
    assert geometric_median(triangle) == pytest.approx([3.0, 4.0], abs=1e-5)


def test_equal_rows_are_their_own_median() -> None:
    rows = np.full((4, 3), 0.1)
    assert np.allclose(geometric_median(rows), 0.1, atol=1e-15)


@pytest.mark.parametrize("rule", ROBUST)
def test_a_fifth_of_attackers_moves_a_robust_average_by_less_than_the_clients_differ(rule: Rule) -> None:
    rng = stream(1, rule)
    honest = rng.normal(1.0, 0.1, (40, 50))
    attackers = np.full((10, 50), -500.0)
    found = Averaging(rule).of(np.concatenate([attackers, honest]))
    assert np.abs(found - 1.0).max() < 0.1
    assert abs(Averaging("mean").of(np.concatenate([attackers, honest]))[0] - 1.0) > 90


START = Tensors({"w": np.full((2, 2), 10, np.float32), "b": np.zeros(1, np.float32)})


def model(w: float, b: float) -> Tensors:
    return Tensors({"w": START["w"] + np.float32(w), "b": START["b"] + np.float32(b)})


@pytest.mark.parametrize("rule", ["trimmed_mean", "median"])
def test_models_are_averaged_coordinate_by_coordinate(rule: Rule) -> None:
    mean = RobustMean(Averaging(rule), START)
    for w, b in ((1, 5), (2, 1e30), (1e30, 6), (3, 7), (2, 6)):
        mean.add(model(w, b), 10)
    found = mean.result()
    assert np.all(found["w"] == np.float32(10 + (7 / 3 if rule == "trimmed_mean" else 2)))
    assert found["b"][0] == np.float32(19 / 3 if rule == "trimmed_mean" else 6)
    assert found["w"].dtype == np.float32 and mean.weight == 50


def test_clipping_by_hand() -> None:
    """Lengths per value of 1, 1 and 100: the longest becomes 2, and the mean of 1, 1 and 2 is 4/3."""
    mean = RobustMean(Averaging("mean", clip=2.0), START)
    for size in (1.0, 1.0, 100.0):
        mean.add(model(size, size))
    assert mean.result()["w"][0, 0] == np.float32(10 + 4 / 3) and mean.result()["b"][0] == np.float32(4 / 3)


def test_parts_of_a_master_are_averaged_where_three_hold_them() -> None:
    mean = RobustMean(Averaging("median"), START, partial=True)
    for w in (1.0, 2.0, 9.0):
        mean.add({"w": model(w, 0)["w"]})
    for b in (1.0, 2.0):
        mean.add({"b": model(0, b)["b"]})
    found = mean.result()
    assert np.all(found["w"] == 12) and found["b"][0] == 0.0


def test_of_two_models_what_they_started_from_is_left() -> None:
    """Of parts of a master those that two hold; their number is reported."""
    told: list[int] = []
    for start in (START, None):
        mean = RobustMean(Averaging("median"), start, too_few=told.append)
        with refused(TooFewReplies, "too-few-replies"):
            mean.result()
        for _ in range(2):
            mean.add(model(1, 1))
        assert mean.result() is start if start else not mean.result()
    parts = RobustMean(Averaging("median"), START, partial=True, too_few=told.append)
    for names in ("wb", "wb", "w"):
        parts.add({name: model(1, 1)[name] for name in names})
    assert parts.result()["b"][0] == 0.0 and told == [2, 2, 1]
    velocity = Tensors({"w": START["w"]})
    same, still = with_momentum(START, START, velocity, 0.9)
    assert same is START and still is velocity


def test_a_missing_gradient_counts_as_zero() -> None:
    """The median of 1, 2 and 9 is 2; three of four replies hold it: 1.5."""
    mean = RobustGradient(Averaging("median"))
    for value in (1.0, 2.0, 9.0):
        mean.add({"a": np.full(2, value, np.float32)})
    mean.add({"b": np.ones(1, np.float32)})
    assert mean.count == 4
    assert {name: array.tolist() for name, array in mean.gradient().items()} == {"a": [1.5, 1.5]}
