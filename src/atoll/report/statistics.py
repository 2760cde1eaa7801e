"""Paired comparisons over seeds: intervals of a mean, the exact sign-flip test, and Holm's correction."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
FEWEST = 8  # pairs for a test: with fewer, no p-value survives a correction over several rows
MOST = 40  # pairs that the exact test counts in reasonable time


class Interval(NamedTuple):
    """A mean and its confidence interval; of a single value the ends are NaN."""

    mean: float
    low: float
    high: float


def t_interval(values: Sequence[float]) -> Interval:
    """Student's interval of the mean, at 95 %."""
    mean = float(np.mean(values))
    if len(values) < 2:
        return Interval(mean, math.nan, math.nan)
    from scipy.stats import t

    half = float(t.ppf((1 + CONFIDENCE) / 2, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values)))
    return Interval(mean, mean - half, mean + half)


def sign_flip_p(differences: Sequence[float]) -> float:
    """The exact two-sided p-value of paired differences: the share of all ways to choose their signs that give a sum
    at least as far from zero. NaN if there are fewer than eight pairs; of more than 40, that of the t-test.

    The sums are those of two halves, so that 40 pairs take 2 x 2^20 sums instead of 2^40.
    """
    count = len(differences)
    if count < FEWEST:
        return math.nan
    if count > MOST:
        from scipy.stats import ttest_1samp

        return float(ttest_1samp(differences, 0.0).pvalue)
    sizes = np.abs(np.asarray(differences, np.float64))
    reached = abs(float(np.sum(differences))) * (1 - 1e-12)  # equal sums may differ in their last bits
    if reached == 0:
        return 1.0
    first, second = (_sums(part) for part in (sizes[: count // 2], sizes[count // 2 :]))
    second.sort()
    above = len(second) - np.searchsorted(second, reached - first, side="left")
    below = np.searchsorted(second, -reached - first, side="right")
    return float((above.sum() + below.sum()) / (len(first) * len(second)))


def _sums(sizes: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The sums of these numbers for all choices of their signs."""
    found = np.zeros(1)
    for size in sizes:
        found = np.concatenate([found + size, found - size])
    return found


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's correction for several tests at once; NaN stays NaN and is not counted."""
    known = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    corrected, largest = [math.nan] * len(p_values), 0.0
    for rank, (p, place) in enumerate(known):
        largest = max(largest, min(1.0, p * (len(known) - rank)))
        corrected[place] = largest
    return corrected
