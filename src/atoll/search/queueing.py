"""Which group of clients tunes which candidate: a random free one, and a queue where there are too few groups.

Yuan et al., section 4.2: "Each PM will be scheduled to a random group [...]. If all groups are busy, cloud will wait
until one has finished and schedule the next PM to this group." When a group has finished is reckoned, not measured, so
that the same seed gives the same groups on any machine: a candidate's MACs times the rows of the group's largest
client, which is the one that the others wait for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def scheduled(
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
