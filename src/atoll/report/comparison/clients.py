"""Fairness: how a network does on the clients for which it is worst."""

from __future__ import annotations

import math
from collections.abc import Sequence

from atoll.report.comparison.rows import Row

FEWEST = 5  # clients of whom a worst tenth is spoken


def worst_tenth(values: Sequence[float]) -> float:
    """The mean of the lowest tenth, of at least one value; NaN for fewer than five."""
    if len(values) < FEWEST:
        return math.nan
    lowest = sorted(values)[: max(1, math.ceil(len(values) / 10))]
    return sum(lowest) / len(lowest)


def worst_by_seed(row: Row) -> list[float]:
    """The worst tenth of the clients' weighted F1, for each run of a row."""
    found = [worst_tenth(list(one.clients.values())) for one in row.found]
    return [value for value in found if not math.isnan(value)]
