"""Hypervolumes of groups of runs: each search's own, and all on one common scale; and their paired differences.

A search's own hypervolume is of its validation errors, in a box of its own. So only searches by one method are compared
by it. The common one is of test errors, in one box for all networks of a comparison (see `fronts`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from atoll.report.comparison.fronts import common_scale, hypervolumes, networks, runs_of
from atoll.report.comparison.rows import Comparison
from atoll.report.statistics import Interval, holm, sign_flip_p, t_interval

UNKNOWN = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Volumes:
    """The hypervolumes of a group, and what they are more than those of the first group, seed by seed."""

    group: str
    by_seed: Mapping[int, float]
    against: str = ""  # empty: it is compared with nothing
    seeds: Sequence[int] = ()  # that both have
    difference: Interval = UNKNOWN
    p: float = math.nan  # corrected over the groups; NaN with too few seeds


def own_volumes(found: Comparison) -> list[Volumes]:
    """Of the last round of each search. Only groups by the method of the first one are compared with it."""
    volumes: dict[str, dict[int, float]] = {}
    methods: dict[str, str] = {}
    for group, runs in runs_of(found).items():
        values = {int(run.manifest["seed"]): run.result.get("hypervolume") for run in runs}
        known = {seed: float(value) for seed, value in values.items() if value is not None}
        if known:
            volumes[group], methods[group] = known, str(runs[0].manifest["method"])
    alike = [group for group in volumes if methods[group] == methods[next(iter(volumes))]]
    compared = _compared({group: volumes[group] for group in alike})
    return compared + [Volumes(group, own) for group, own in volumes.items() if group not in alike]


def common_volumes(found: Comparison) -> list[Volumes]:
    """Of the networks that the runs of each group handed over, on one scale."""
    every = networks(found)
    scale = common_scale(found, every)
    return [] if scale is None else _compared(hypervolumes(every, scale))


def _compared(volumes: Mapping[str, Mapping[int, float]]) -> list[Volumes]:
    if not volumes:
        return []
    first, *others = volumes
    reference = volumes[first]
    seeds = {group: [seed for seed in reference if seed in volumes[group]] for group in others}
    values = {group: [volumes[group][seed] - reference[seed] for seed in seeds[group]] for group in others}
    corrected = holm([sign_flip_p(values[group]) for group in others])
    differences = [t_interval(values[group]) if values[group] else UNKNOWN for group in others]
    rows = zip(others, differences, corrected, strict=True)
    return [
        Volumes(first, reference),
        *(Volumes(group, volumes[group], first, seeds[group], difference, p) for group, difference, p in rows),
    ]
