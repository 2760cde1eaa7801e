"""Who takes part in a round, and who trains which individual: the paper's double sampling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from atoll.errors import ConfigError, nearest


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


Floats = npt.NDArray[np.float64]

DIGITS = 12  # distances that differ only by rounding are equal: the same groups on every machine


def partition(
    sizes: Sequence[int],
    labels: Sequence[Sequence[int] | None],
    count: int,
    balance: float = 1.1,
) -> list[list[int]]:
    """`count` groups of client numbers, each client in one of them and none empty; members in rising order.

    `labels` are a client's rows per class; None, of a client that does not tell, is read as the distribution of all
    who do. If nobody tells, sizes alone decide. Where no group can take a client without breaking the balance, it goes
    to the one that breaks it least. Ties go to the first group, among clients of equal size to the first client.
    """
    if not 1 <= count <= len(sizes):
        raise ConfigError(
            f"groups = {count}: {len(sizes)} clients cannot be put into {count} groups; use 1 to {len(sizes)}",
            code="impossible-group-count",
        )
    known = _class_counts(sizes, labels)
    everyone = _shares(known.sum(axis=0, keepdims=True))[0]
    totals, counts = np.zeros(count), np.zeros((count, known.shape[1]))
    groups: list[list[int]] = [[] for _ in range(count)]
    for client in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        empty = next((number for number, group in enumerate(groups) if not group), None)
        chosen = empty
        if chosen is None:
            excess = _excess(totals, sizes[client], balance)
            before = np.abs(_shares(counts) - everyone).sum(axis=1)
            after = np.abs(_shares(counts + known[client]) - everyone).sum(axis=1)
            # The other groups stay as they are, so the mean distance is smallest where the change is.
            chosen = int(np.lexsort((np.round(after - before, DIGITS), np.round(excess, DIGITS)))[0])
        groups[chosen].append(client)
        totals[chosen] += sizes[client]
        counts[chosen] += known[client]
    return [sorted(group) for group in groups]


def distance(labels: Sequence[Sequence[int]], group: Sequence[int]) -> float:
    """How far this group's label distribution is from that of all clients: 0 (the same) to 2 (nothing in common)."""
    rows = np.asarray(labels, dtype=np.float64)
    own, all_of_them = rows[list(group)].sum(axis=0, keepdims=True), rows.sum(axis=0, keepdims=True)
    return float(np.abs(_shares(own) - _shares(all_of_them)).sum())


def _class_counts(sizes: Sequence[int], labels: Sequence[Sequence[int] | None]) -> Floats:
    """Rows per class of every client; who does not tell is taken for average."""
    known = [np.asarray(row, dtype=np.float64) for row in labels if row is not None]
    if not known:
        return np.asarray(sizes, dtype=np.float64).reshape(-1, 1)  # one class for all: every distance is 0
    average = _shares(np.sum(known, axis=0, keepdims=True))[0]
    pairs = zip(sizes, labels, strict=True)
    return np.array([average * size if row is None else row for size, row in pairs], dtype=np.float64)


def _shares(counts: Floats) -> Floats:
    """Each row as a distribution; a row of nothing stays nothing."""
    sums = counts.sum(axis=1, keepdims=True)
    return counts / np.where(sums > 0, sums, 1.0)


def _excess(totals: Floats, size: int, balance: float) -> Floats:
    """For every group: by how many rows the largest group would be too large if this one took the client; 0 if not."""
    first, second = np.sort([*totals, np.inf])[:2]
    # The smallest group afterwards is the smallest now, unless that one grows: then it or the next.
    others = np.where(totals == first, second, first)
    least = np.minimum(others, totals + size)
    excess: Floats = np.maximum(0.0, np.maximum(totals.max(), totals + size) - balance * least)
    return excess


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
