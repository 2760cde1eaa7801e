"""Who gets which sub-model: adaptive transmission and the two rules it is compared with.

D. Yao et al., "Federated Model Search via Reinforcement Learning", section IV: "We sort the sub-models by model size
and sort the participants by their data rate", larger sub-models going to faster links.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from atoll.errors import ConfigError, nearest

Rule = Literal["adaptive", "random", "same"]
RULES: tuple[Rule, ...] = get_args(Rule)


def assign(
    sizes: Sequence[float],
    rates: Sequence[float | None],
    rule: Rule,
    rng: np.random.Generator,
) -> list[int]:
    """For each client, in the order of `rates`, the number of the sub-model it gets; every sub-model goes to one.

    adaptive   the largest to the fastest link; among equally fast ones by lot, lest one client always get the largest
    random     any to any
    same       as they come: sub-models are taken to be of one size, so there is nothing to sort

    A rate of None is not known. Where no rate is known, `adaptive` leaves the order as it is; where only some are, the
    unknown ones count as the slowest.
    """
    if len(sizes) != len(rates):
        raise ConfigError(
            f"{len(sizes)} sub-models for {len(rates)} clients: each client gets exactly one",
            code="client-count-mismatch",
        )
    if rule == "random":
        return [int(number) for number in rng.permutation(len(sizes))]
    if rule == "same" or (rule == "adaptive" and all(rate is None for rate in rates)):
        return list(range(len(sizes)))
    if rule != "adaptive":
        raise ConfigError(f"assignment = {rule!r}: unknown; {nearest(str(rule), RULES)}", code="unknown-assignment")
    by_size = sorted(range(len(sizes)), key=lambda number: -sizes[number])
    tied = len(set(rates)) < len(rates)
    clients = [int(client) for client in rng.permutation(len(rates))] if tied else range(len(rates))
    by_rate = sorted(clients, key=lambda client: -_known(rates[client]))
    given = dict(zip(by_rate, by_size, strict=True))
    return [given[client] for client in range(len(rates))]


def transmitted(sizes: Sequence[float], order: Sequence[int], rule: Rule) -> list[float]:
    """What each client is sent, for the comparison of latencies: under `same`, every sub-model has the mean size."""
    if rule == "same":
        return [sum(sizes) / len(sizes)] * len(sizes)
    return [sizes[number] for number in order]


def _known(rate: float | None) -> float:
    return -1.0 if rate is None else rate
