"""What releases cost together: dp-accounting's privacy loss distributions, for Gaussian noise on Poisson batches.

Two data sets are neighbours if one row of a client is replaced by an empty row, which contributes nothing. The numbers
of rows stay the same: they are public. The accounting is that of adding or removing a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from atoll.core.messages import Part
from atoll.errors import ConfigError

LARGEST_NOISE = 10_000.0  # with more noise than this nothing is left of a gradient or a count
# Of the privacy losses that are added up. Results are upper bounds whatever it is; a smaller value takes longer. Where
# epsilon is small, 2e-4 was up to 2 % above Opacus', and the finer one takes little time.
DISCRETIZATION = 2e-4
FINE, SMALL = 2e-5, 0.2
COARSE = 5e-3  # the same where less precision will do: ten times as fast, and up to 1.5 % above
MULTIPLES = (16, 4, 2, 1)  # of a sum, for which a budget is checked at once
PRECISION = 0.005  # relative, of a noise that is derived; the result is always on the safe side


class Release(NamedTuple):
    """Values with Gaussian noise that leave a client, this many `times`.

    `noise` is the standard deviation in units of the L2 sensitivity to one row of this part. Each time every row takes
    part with the probability `rate`.
    """

    part: Part
    noise: float
    rate: float = 1.0
    times: int = 1


Spent = Mapping[tuple[Part, float, float], int]  # part, noise and rate -> how often


def summed(spent: Spent, releases: Sequence[Release]) -> dict[tuple[Part, float, float], int]:
    """What was spent before, and these releases."""
    after = dict(spent)
    for release in releases:
        place = release.part, release.noise, release.rate
        after[place] = after.get(place, 0) + release.times
    return after


def epsilon_of(spent: Spent, delta: float) -> float:
    """Epsilon of everything that was released of one client's rows. A row is in one part only, so the parts do not add
    up: the largest counts."""
    parts = sorted({part for part, _, _ in spent})
    return max((part_epsilon(spent, part, delta) for part in parts), default=0.0)


def part_epsilon(spent: Spent, part: Part, delta: float) -> float:
    """Epsilon of what was released of the rows of one part."""
    return sum_epsilon(of_part(spent, part), delta)


Events = Mapping[tuple[float, float], int]  # noise and rate -> how often, of rows that are in all of it


def of_part(spent: Spent, part: Part) -> dict[tuple[float, float], int]:
    """What was released of the rows of one part."""
    return {(noise, rate): count for (own, noise, rate), count in spent.items() if own == part}


def sum_epsilon(events: Events, delta: float, coarse: bool = False) -> float:
    """Epsilon of all of this together."""
    ordered = tuple(sorted((noise, rate, count) for (noise, rate), count in events.items() if count))
    found = _epsilon(ordered, delta, COARSE if coarse else DISCRETIZATION)
    return _epsilon(ordered, delta, FINE) if found < SMALL and not coarse else found


class Budget:
    """An epsilon that is not to be exceeded. Sums are compared with the largest multiple that was found to be within
    it; only what is beyond that is computed."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self.epsilon, self.delta = epsilon, delta
        self._within: dict[frozenset[tuple[float, float]], Events] = {}  # noise and rates -> counts that are allowed

    def allows(self, events: Events) -> bool:
        kinds = frozenset(place for place, count in events.items() if count)
        known = self._within.get(kinds, {})
        if all(count <= known.get(place, 0) for place, count in events.items()):
            return True
        for often in MULTIPLES:
            more = {place: often * events[place] for place in kinds}
            # The coarse result is an upper bound, so that what it allows is allowed.
            coarse = sum_epsilon(more, self.delta, coarse=True) <= self.epsilon
            if coarse or (often == 1 and sum_epsilon(more, self.delta) <= self.epsilon):
                self._within[kinds] = more
                return True
        return False


@lru_cache(maxsize=4096)
def _epsilon(events: tuple[tuple[float, float, int], ...], delta: float, interval: float) -> float:
    if not events:
        return 0.0
    import dp_accounting
    from dp_accounting.pld import PLDAccountant

    relation = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
    accountant = PLDAccountant(relation, value_discretization_interval=interval)
    for noise, rate, count in events:
        event = dp_accounting.GaussianDpEvent(noise)
        accountant.compose(event if rate >= 1 else dp_accounting.PoissonSampledDpEvent(rate, event), count)
    return float(accountant.get_epsilon(delta))


def smallest_noise(epsilon: float, spend: Callable[[float], float], what: str) -> float:
    """The smallest noise with which `spend` stays within epsilon, up to the precision, on the safe side."""
    low, high = 0.0, 1.0
    while spend(high) > epsilon:
        low, high = high, 2 * high
        if high > LARGEST_NOISE:
            raise ConfigError(
                f"privacy.epsilon = {epsilon:g}: {what} would spend {spend(LARGEST_NOISE):.3g} even with a noise of "
                f"{LARGEST_NOISE:,.0f}; use fewer rounds, a larger epsilon or more rows per client",
                code="privacy-unreachable",
            )
    while low == 0.0 and high > 0.2 and spend(high / 2) <= epsilon:
        high /= 2
    low = max(low, high / 2)
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        low, high = (middle, high) if spend(middle) > epsilon else (low, middle)
    return high
