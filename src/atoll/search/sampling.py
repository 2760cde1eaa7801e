"""Who takes part in a round, and who trains which individual: the paper's double sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from atoll.errors import ConfigError


def participants(clients: int, fraction: float) -> int:
    """m = C * K, rounded to the nearest whole number (halves up), but at least one client."""
    if not 0 < fraction <= 1:
        raise ConfigError(
            f"a fraction of {fraction} of the clients is not possible: use more than 0 and at most 1",
            code="invalid-setting",
        )
    if clients < 1:
        raise ConfigError("there are no clients to choose from: the federation is empty", code="no-clients")
    # 0.29 * 50 is 14.499999999999998 in floats: without the small addition a half would sometimes go down.
    return max(1, math.floor(fraction * clients + 0.5 + 1e-9))


def choose(names: Sequence[str], fraction: float, rng: np.random.Generator) -> list[str]:
    """m of the clients, without replacement, every one equally likely; in the order in which they were given."""
    count = participants(len(names), fraction)
    taken = np.sort(rng.choice(len(names), count, replace=False))
    return [names[int(index)] for index in taken]


def groups(names: Sequence[str], count: int, rng: np.random.Generator) -> list[list[str]]:
    """The m chosen clients at random in `count` groups of floor(m / count); what is left over joins the first groups.

    Every client is in exactly one group, so it trains one individual once.
    """
    if count < 1:
        raise ConfigError(f"a population of {count} is not possible: use 1 or more", code="invalid-setting")
    if len(names) < count:
        raise ConfigError(
            f"{len(names)} clients cannot train a population of {count}: each individual needs a client of its own; "
            f"set the population to {len(names)} or less, or let more clients take part",
            code="too-few-clients",
        )
    shuffled = [names[int(index)] for index in rng.permutation(len(names))]
    size, left_over = divmod(len(names), count)
    result, start = [], 0
    for number in range(count):
        end = start + size + (1 if number < left_over else 0)
        result.append(shuffled[start:end])
        start = end
    return result
