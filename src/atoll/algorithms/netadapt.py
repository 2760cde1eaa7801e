"""Falling resource budgets, and the fewest filters whose removal meets one (Yuan et al., section 4 and 4.1; NetAdapt).

The target of iteration t is Res(GM_{t-1}) - Res(GM_0) * step * decay^(t-1), and never below the final budget. The steps
add up to step / (1 - decay), 71 % for 5 % and 0.93: a minimal step lets a run go further.
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
    """How fast the budgets fall. Shares are of the start network's resources."""

    step: float = 0.05
    decay: float = 1.0
    minimal: float = 0.0

    def share(self, iteration: int) -> float:
        """How much of the start network's resources iteration 1, 2, ... takes away."""
        return max(self.step * self.decay ** (iteration - 1), self.minimal)

    def targets(self, iteration: int, before: Resources, start: Resources, final: Resources) -> dict[str, float]:
        """What a candidate of this iteration may take of each kind; a kind within its final budget stays there."""
        share = self.share(iteration)
        return {kind: max(final[kind], before[kind] - start[kind] * share) for kind in final}


def final_budget(wanted: Resources, start: Resources) -> dict[str, float]:
    """Amounts from settings: a value up to 1 is a share of the start network, a larger one an amount."""
    return {kind: value * start[kind] if value <= 1 else value for kind, value in wanted.items()}


def within_budget(amounts: Resources, budget: Resources) -> bool:
    """Whether all kinds are within the budget."""
    return all(amounts[kind] <= limit for kind, limit in budget.items())


def most_removable(width: int, multiple: int) -> int:
    """How many filters can go, in multiples, if one stays."""
    return (width - 1) // multiple * multiple


def fewest_removed(width: int, multiple: int, targets: Resources, with_width: Callable[[int], Resources]) -> int | None:
    """How many filters must go at least, in multiples; None if even the most that can go do not meet the targets.

    `with_width(w)` are the resources with w filters left, which never grow when w falls; at least one filter stays.
    Found by halving: a wide layer is asked for ten times, not a thousand.
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
    """A `ConfigError` for a final budget below what the narrowest network takes."""
    for kind, limit in budget.items():
        if least[kind] > limit:
            raise ConfigError(
                f"resources.{kind} = {wanted[kind]:g}: that is a budget of {limit:,.6g}, and with every layer pruned "
                f"as far as it goes the network still takes {least[kind]:,.6g}; raise the budget, or prune fewer "
                "filters at a time (multiple)",
                code="unreachable-budget",
            )


def survivors(candidates: int, done: int, share: float) -> int:
    """How many of an iteration's first `candidates` are left after `done` rounds that drop this share of them each.

    max(1, round(K0 * (1 - r * alpha))), halves up. Line 25 of Algorithm 4.1 has `max` where only `min` makes sense:
    as printed, all but one would be dropped in the first round whatever alpha is.
    """
    # 7 * (1 - 1/2) is 3.5 and 6 * (1 - 0.9) is 0.5999...: without the small addition a half would sometimes go down.
    return max(1, math.floor(candidates * (1 - done * share) + 0.5 + 1e-9))


def remaining_after(candidates: int, number: int, rounds: int, share: float) -> int:
    """How many go on after round `number` of an iteration's `rounds`: the last one keeps one, before the upload."""
    return 1 if number >= rounds else survivors(candidates, number, share)


def degradation(previous: float, accuracy: float, saving: float) -> float:
    """Accuracy lost per resource saved, against the network that all candidates were pruned from."""
    if not saving > 0:
        raise ValueError(f"a candidate that saves {saving} is none: it must need less than the network before it")
    return (previous - accuracy) / saving


def saved(before: Mapping[str, float], after: Mapping[str, float], start: Mapping[str, float]) -> float:
    """What a candidate saves, in shares of the start network: the mean over the kinds of resources in `start`.

    With one resource that is the paper's Res(prev) - Res(candidate) in another unit, and ranks the same.
    """
    return sum((before[kind] - after[kind]) / start[kind] for kind in start) / len(start)


def ranked(scores: Mapping[str, tuple[float, float]]) -> list[str]:
    """Candidates by (degradation, saving): the smallest degradation first, of equals the one that saves more."""
    order = {name: number for number, name in enumerate(scores)}
    return sorted(scores, key=lambda name: (scores[name][0], -scores[name][1], order[name]))


def assign_groups(
    work: Sequence[float],
    places: Sequence[int | None],
    avoid: Sequence[int | None],
    paces: Sequence[float],
    rng: np.random.Generator,
) -> list[int]:
    """The group of every candidate, in the order of their queue.

    `work` is what a row costs each candidate, `places` the group it has already (None: it needs one), `avoid` a group
    that it must not get again as long as there is another, `paces` the rows of each group's largest client.
    """
    finished = [0.0] * len(paces)  # when each group has done what it has to do
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
    """A random free group; if there is none, the one that is free first."""
    usable = [group for group in range(len(finished)) if group != bad] or [0]
    free = [group for group in usable if finished[group] == 0.0]
    if free:
        return free[int(rng.integers(len(free)))]
    return min(usable, key=lambda group: (finished[group], group))
