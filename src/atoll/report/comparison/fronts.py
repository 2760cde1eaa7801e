"""All networks of all runs by test error and cost: the front of fronts, and hypervolumes on one common scale."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atoll.report.comparison.rows import Comparison, Row
from atoll.run.reader import Run

COST = "macs"


@dataclass(frozen=True)
class FoundNetwork:
    """A network for all clients that some run handed over, measured on test rows."""

    group: str
    seed: int
    name: str
    picks: tuple[str, ...]
    error: float
    cost: float


@dataclass(frozen=True)
class CommonScale:
    """The box in which hypervolumes are measured: errors up to that of the best constant answer, costs between the
    cheapest and the most expensive network of all runs, by their logarithms."""

    error: float
    cheapest: float
    dearest: float

    def hypervolume(self, points: Sequence[tuple[float, float]]) -> float:
        """The share of the box that these (error, cost) dominate."""
        wide = math.log(self.dearest / self.cheapest) if self.dearest > self.cheapest else 1.0
        inside = sorted(
            (math.log(max(cost, self.cheapest) / self.cheapest) / wide, error / self.error)
            for error, cost in points
            if error < self.error and cost <= self.dearest
        )
        area, lowest = 0.0, 1.0
        for place, height in inside:
            if height < lowest:
                area += (1.0 - place) * (lowest - height)
                lowest = height
        return area


def networks(found: Comparison) -> list[FoundNetwork]:
    """Of every run the networks for all clients whose test error and cost are known."""
    every: list[FoundNetwork] = []
    for group, runs in runs_of(found).items():
        for run in runs:
            for entry in run.result["candidates"]:
                cost = entry["objectives"].get(COST)
                error = entry["test"]["test_error"] if "test" in entry else entry["objectives"].get("test_error")
                trained = entry.get("about", {}).get("trained_rounds") != 0
                if cost and error is not None and not entry.get("owner") and trained:
                    one = FoundNetwork(
                        group,
                        int(run.manifest["seed"]),
                        str(entry["id"]),
                        tuple(entry["picks"]),
                        float(error),
                        float(cost),
                    )
                    every.append(one)
    return every


def runs_of(found: Comparison) -> dict[str, list[Run]]:
    """The runs of each group, each once."""
    groups: dict[str, dict[str, Run]] = {}
    for row in found.rows:
        for one in row.found:
            groups.setdefault(row.group, {})[str(one.run.path)] = one.run
    return {name: list(runs.values()) for name, runs in groups.items()}


def front_of_fronts(every: Sequence[FoundNetwork]) -> list[FoundNetwork]:
    """The networks that no other one beats in both error and cost, by rising cost."""
    front: list[FoundNetwork] = []
    for one in sorted(every, key=lambda network: (network.cost, network.error)):
        if not front or one.error < front[-1].error:
            front.append(one)
    return front


def common_scale(found: Comparison, every: Sequence[FoundNetwork]) -> CommonScale | None:
    """The box of all networks; None if nothing can be measured in it."""
    if not every:
        return None
    baselines = [
        float(entry["test"]["baseline_error"])
        for runs in runs_of(found).values()
        for run in runs
        for entry in run.result["candidates"]
        if "baseline_error" in entry.get("test", {})
    ]
    costs = [one.cost for one in every]
    return CommonScale(max(baselines, default=1.0) or 1.0, min(costs), max(costs) * 1.0000001)


def hypervolumes(every: Sequence[FoundNetwork], scale: CommonScale) -> dict[str, dict[int, float]]:
    """Group -> seed -> hypervolume."""
    points: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for one in every:
        points.setdefault((one.group, one.seed), []).append((one.error, one.cost))
    found: dict[str, dict[int, float]] = {}
    for (group, seed), own in points.items():
        found.setdefault(group, {})[seed] = scale.hypervolume(own)
    return found


def leading(rows: Sequence[Row]) -> list[Row]:
    """Of each group the row of the recommended network, which comes first: one test for a group, not for each pick."""
    first: Mapping[str, Row] = {row.group: row for row in reversed(rows)}
    return [row for row in rows if first[row.group] is row]
