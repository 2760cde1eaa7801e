"""What it costs to reach an accuracy: the best accuracy of a round so far against what the clients have spent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from atoll.report.comparison.fronts import runs_of
from atoll.report.comparison.rows import Comparison
from atoll.report.statistics import Interval, t_interval
from atoll.report.view import RunView, view
from atoll.run.reader import Run

QUANTITIES = {
    "client_macs": "MACs of all clients",
    "bytes_up": "bytes sent by all clients",
    "round": "rounds",
    "simulated_seconds": "virtual seconds",
    "wall_seconds": "seconds on the machine of the run",
}
LEVELS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.96, 0.97, 0.98, 0.99)
MOST_LEVELS = 5
GRID = 60  # costs at which curves are averaged


@dataclass(frozen=True)
class ErrorByCost:
    """One run: after each round with an error, what was spent so far and the best accuracy so far."""

    seed: int
    spent: Mapping[str, Sequence[float]]  # quantity -> one number for each such round
    accuracy: Sequence[float]

    def cost_of(self, level: float, quantity: str) -> float | None:
        """What was spent when this accuracy was reached; None if it never was."""
        for spent, accuracy in zip(self.spent.get(quantity, ()), self.accuracy, strict=False):
            if accuracy >= level - 1e-12:
                return spent
        return None

    def at(self, spent: float, quantity: str) -> float | None:
        """The best accuracy for at most this cost; None before the first measurement."""
        best = None
        for cost, accuracy in zip(self.spent[quantity], self.accuracy, strict=True):
            if cost > spent:
                break
            best = accuracy
        return best


def progress_of(run: Run) -> ErrorByCost:
    """The curve of one run. A search by a policy counts from its final training on: before that, its errors are those
    of training batches."""
    return _progress(view(run))


def _progress(one: RunView) -> ErrorByCost:
    digest = one.digest
    start = 0
    if one.kind == "policy":
        final = [number for number, phase in digest.phases if phase == "final"]
        start = final[0] if final else 10**12
    errors = [(number, value) for number, value in digest.series.get("error", ()) if number >= start]
    sums: dict[str, dict[int, float]] = {
        name: dict(zip(digest.costs[name].rounds, accumulate(digest.costs[name].values), strict=True))
        for name in ("client_macs", "bytes_up", "simulated_seconds")
    }
    sums["wall_seconds"] = dict(digest.seconds)
    sums["round"] = {number: float(place) for place, number in enumerate(digest.costs["tasks"].rounds, start=1)}
    known = [(number, value) for number, value in errors if all(number in held for held in sums.values())]
    spent = {name: [held[number] for number, _ in known] for name, held in sums.items()}
    spent = {name: values for name, values in spent.items() if any(values)}
    return ErrorByCost(one.seed, spent, list(accumulate((1 - value for _, value in known), max)))


def progress(found: Comparison) -> dict[str, list[ErrorByCost]]:
    """Group -> its runs. Groups without clients (all rows in one place) are left out: nothing is sent there."""
    return {
        group: [progress_of(run) for run in runs]
        for group, runs in runs_of(found).items()
        if not runs[0].manifest.get("centralised")
    }


def quantities(groups: Mapping[str, Sequence[ErrorByCost]]) -> list[str]:
    """The quantities that every run has."""
    every = [one for runs in groups.values() for one in runs if one.accuracy]
    return [name for name in QUANTITIES if every and all(name in one.spent for one in every)]


def levels(groups: Mapping[str, Sequence[ErrorByCost]]) -> list[float]:
    """Round accuracies that some run reaches, and not already in everybody's first round; the highest ones."""
    every = [one for runs in groups.values() for one in runs if one.accuracy]
    if not every:
        return []
    best, first = max(one.accuracy[-1] for one in every), min(one.accuracy[0] for one in every)
    return [level for level in LEVELS if first < level <= best][-MOST_LEVELS:]


@dataclass(frozen=True)
class Reached:
    """The cost of an accuracy over the runs of a group that reach it."""

    runs: int
    reached: int
    interval: Interval


def cost_to_reach(runs: Sequence[ErrorByCost], level: float, quantity: str) -> Reached:
    costs = [cost for one in runs if (cost := one.cost_of(level, quantity)) is not None]
    return Reached(len(runs), len(costs), t_interval(costs) if costs else Interval(*[math.nan] * 3))


def mean_curve(runs: Sequence[ErrorByCost], quantity: str, most: float) -> list[tuple[float, Interval]]:
    """The mean over runs of the best accuracy for a cost, from where all runs have one; at most for the cost `most`."""
    known = [one for one in runs if one.accuracy and quantity in one.spent]
    if not known:
        return []
    first = max(one.spent[quantity][0] for one in known)
    last = min(most, max(one.spent[quantity][-1] for one in known))
    if last < first:
        return []
    ratio = (last / first) if first > 0 else 1.0
    grid = [first * ratio ** (place / GRID) for place in range(GRID + 1)] if ratio > 1 else [first]
    found = []
    for cost in grid:
        values = [value for one in known if (value := one.at(cost * (1 + 1e-9), quantity)) is not None]
        found.append((cost, t_interval(values)))
    return found
