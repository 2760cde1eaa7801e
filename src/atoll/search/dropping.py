"""Which candidates go on: early dropping by accuracy lost per resource saved (Yuan et al., sections 3.3 and 4.3)."""

from __future__ import annotations

import math
from collections.abc import Mapping


def survivors(candidates: int, done: int, share: float) -> int:
    """How many of an iteration's first `candidates` are left after `done` rounds that drop this share of them each.

    max(1, round(K0 * (1 - r * alpha))), halves up. Line 25 of Algorithm 4.1 has `max` where only `min` makes sense:
    as printed, all but one would be dropped in the first round whatever alpha is.
    """
    # 7 * (1 - 1/2) is 3.5 and 6 * (1 - 0.9) is 0.5999...: without the small addition a half would sometimes go down.
    return max(1, math.floor(candidates * (1 - done * share) + 0.5 + 1e-9))


def left_after(candidates: int, number: int, rounds: int, share: float) -> int:
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
