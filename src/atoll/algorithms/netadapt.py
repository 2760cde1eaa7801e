"""Decreasing resource budgets and the smallest pruning that meets one (Yuan et al., sections 4 and 4.1; NetAdapt).

The target of iteration t is Res(GM_{t-1}) - Res(GM_0) * step * decay^(t-1), but never below the final budget. The
steps sum to step / (1 - decay), 71 % for 5 % and 0.93; a minimal step lets a run reduce more than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from atoll.errors import ConfigError

Resources = Mapping[str, float]  # kind -> amount


@dataclass(frozen=True)
class Schedule:
    """How fast the budgets decrease. All three values are relative to the start network's resources."""

    step: float = 0.05
    decay: float = 1.0
    minimal: float = 0.0

    def share(self, iteration: int) -> float:
        """The share of the start network's resources that iteration 1, 2, ... removes."""
        return max(self.step * self.decay ** (iteration - 1), self.minimal)

    def targets(self, iteration: int, before: Resources, start: Resources, final: Resources) -> dict[str, float]:
        """The limit for each resource in this iteration, never below its final budget."""
        share = self.share(iteration)
        return {kind: max(final[kind], before[kind] - start[kind] * share) for kind in final}


def final_budget(wanted: Resources, start: Resources) -> dict[str, float]:
    """Absolute budgets: a value up to 1 is a share of the start network, a larger value is an absolute amount."""
    return {kind: value * start[kind] if value <= 1 else value for kind, value in wanted.items()}


def within_budget(amounts: Resources, budget: Resources) -> bool:
    """Whether every resource is within its budget."""
    return all(amounts[kind] <= limit for kind, limit in budget.items())


def most_removable(width: int, multiple: int) -> int:
    """How many filters can be removed, in multiples of `multiple`, if at least one remains."""
    return (width - 1) // multiple * multiple


def fewest_removed(width: int, multiple: int, targets: Resources, with_width: Callable[[int], Resources]) -> int | None:
    """The smallest number of filters to remove, in multiples of `multiple`; None if no removal meets the targets.

    `with_width(w)` gives the resources with w filters left and must not grow as w decreases. At least one filter
    remains. Bisection keeps the number of evaluations at ten or so, even for wide layers.
    """
    low, high = 0, most_removable(width, multiple) // multiple  # in multiples: `low` is too few, `high` is enough
    if high == 0 or not within_budget(with_width(width - high * multiple), targets):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if within_budget(with_width(width - middle * multiple), targets):
            high = middle
        else:
            low = middle
    return high * multiple


def require_reachable(wanted: Resources, budget: Resources, least: Resources) -> None:
    """Raise a `ConfigError` if the final budget is below what the narrowest network needs."""
    for kind, limit in budget.items():
        if least[kind] > limit:
            raise ConfigError(
                f"resources.{kind} = {wanted[kind]:g}: the budget is {limit:,.6g}, but the network still needs "
                f"{least[kind]:,.6g} when it is pruned as far as possible; raise the budget or prune fewer filters at "
                "a time (multiple)",
                code="unreachable-budget",
            )


def survivors(candidates: int, done: int, share: float) -> int:
    """How many of an iteration's initial `candidates` remain after `done` rounds, each dropping `share` of them.

    max(1, round(K0 * (1 - r * alpha))), halves rounded up. Line 25 of Algorithm 4.1 has `max` where only `min` makes
    sense: as printed, the first round would drop all candidates but one, whatever alpha is.
    """
    # Floating-point error can put a half slightly below .5; the small addition makes it round up.
    return max(1, math.floor(candidates * (1 - done * share) + 0.5 + 1e-9))


def remaining_after(candidates: int, number: int, rounds: int, share: float) -> int:
    """How many candidates remain after round `number` of `rounds`; after the last round, only the winner."""
    return 1 if number >= rounds else survivors(candidates, number, share)


def degradation(previous: float, accuracy: float, saving: float) -> float:
    """Accuracy lost per resource saved, relative to the network that all candidates were pruned from."""
    if not saving > 0:
        raise ValueError(
            f"saving = {saving}: a candidate must need fewer resources than the network it was pruned from"
        )
    return (previous - accuracy) / saving


def saved(before: Mapping[str, float], after: Mapping[str, float], start: Mapping[str, float]) -> float:
    """The saving of a candidate as a share of the start network, averaged over the resources in `start`.

    With a single resource this is the paper's Res(prev) - Res(candidate) in another unit and gives the same ranking.
    """
    return sum((before[kind] - after[kind]) / start[kind] for kind in start) / len(start)


def ranked(scores: Mapping[str, tuple[float, float]]) -> list[str]:
    """Candidates by (degradation, saving): smallest degradation first, ties by larger saving."""
    order = {name: number for number, name in enumerate(scores)}
    return sorted(scores, key=lambda name: (scores[name][0], -scores[name][1], order[name]))


def assign_groups(
    work: Sequence[float],
    places: Sequence[int | None],
    avoid: Sequence[int | None],
    paces: Sequence[float],
    rng: np.random.Generator,
) -> list[int]:
    """A group for every candidate, in queue order.

    `work`: cost per row of each candidate. `places`: the group a candidate already has, or None. `avoid`: a group not
    to be assigned again if there is another one, or None. `paces`: the rows of each group's largest client.
    """
    finished = [0.0] * len(paces)  # when each group finishes its work
    for cost, place in zip(work, places, strict=True):
        if place is not None:
            finished[place] += cost * paces[place]
    chosen: list[int] = []
    for cost, place, bad in zip(work, places, avoid, strict=True):
        if place is None:
            place = _next(finished, bad, rng)
            finished[place] += cost * paces[place]
        chosen.append(place)
    return chosen


def _next(finished: Sequence[float], bad: int | None, rng: np.random.Generator) -> int:
    """A random idle group; if none is idle, the one that becomes idle first."""
    usable = [group for group in range(len(finished)) if group != bad] or [0]
    free = [group for group in usable if finished[group] == 0.0]
    if free:
        return free[int(rng.integers(len(free)))]
    return min(usable, key=lambda group: (finished[group], group))
