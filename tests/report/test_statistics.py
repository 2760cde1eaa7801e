"""Intervals, the exact sign-flip test and Holm's correction: by hand, against scipy, and how often they are wrong."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from atoll.report.statistics import holm, sign_flip_p, t_interval
from atoll.rng import stream


def test_an_interval_by_hand_and_by_scipy() -> None:
    """Of 1, 2, 3: mean 2, deviation 1, t with two degrees of freedom 4.3027."""
    found = t_interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0 and found.high - 2.0 == pytest.approx(4.3027 / math.sqrt(3), abs=1e-4)
    values = stream(1).normal(size=9).tolist()
    expected = stats.t.interval(0.95, 8, np.mean(values), stats.sem(values))
    assert t_interval(values)[1:] == pytest.approx(expected)
    assert t_interval([5.0]).mean == 5.0 and math.isnan(t_interval([5.0]).low)


def test_signs_by_hand() -> None:
    """Eight equal differences: only all plus and all minus reach the sum, 2 of 256."""
    assert sign_flip_p([0.5] * 8) == pytest.approx(2 / 256)
    assert math.isnan(sign_flip_p([0.5] * 7)), "too few seeds"
    # Seven plus and one minus: the sum 6 is reached by 8 + 8 ways with one odd sign, and 2 with none.
    assert sign_flip_p([1.0] * 7 + [-1.0]) == pytest.approx(18 / 256)
    assert sign_flip_p([0.0] * 8) == 1.0


@pytest.mark.parametrize("count", [8, 11])
def test_signs_like_brute_force_and_scipy(count: int) -> None:
    values = stream(2, "differences", count).normal(0.3, 1.0, count)
    sums = [abs(float(np.dot(signs, values))) for signs in product((1, -1), repeat=count)]
    brute = np.mean([value >= abs(values.sum()) - 1e-12 for value in sums])
    assert sign_flip_p(values.tolist()) == pytest.approx(brute)
    found = stats.permutation_test(
        (values,),
        lambda x, axis: np.mean(x, axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert sign_flip_p(values.tolist()) == pytest.approx(found.pvalue, abs=1e-9)


def test_many_seeds_are_counted_too() -> None:
    values = stream(3).normal(0.0, 1.0, 60)
    for count in (40, 60):
        own = values[:count].tolist()
        assert sign_flip_p(own) == pytest.approx(stats.ttest_1samp(own, 0).pvalue, abs=0.02)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    found = holm([0.02, math.nan, 0.03])
    assert found[0] == pytest.approx(0.04) and found[2] == pytest.approx(0.04) and math.isnan(found[1])


def test_few_false_differences_and_most_true_ones() -> None:
    """200 null comparisons give at most 16 false differences; of 200 differences of two deviations, 80 % are found."""
    rng = stream(4, "made-up comparisons")
    null = [sign_flip_p(rng.normal(0.0, 1.0, 8).tolist()) < 0.05 for _ in range(200)]
    true = [sign_flip_p(rng.normal(2.0, 1.0, 8).tolist()) < 0.05 for _ in range(200)]
    assert sum(null) <= 16 and sum(true) >= 160
