"""Client sampling, grouping of clients, and assignment of sub-models to clients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from atoll.errors import ConfigError, nearest


def participants(clients: int, fraction: float) -> int:
    """m = C * K, rounded to the nearest integer (halves up), at least 1."""
    if not 0 < fraction <= 1:
        raise ConfigError(
            f"fraction = {fraction}: the fraction of clients must be above 0 and at most 1",
            code="invalid-setting",
        )
    if clients < 1:
        raise ConfigError("the federation has no clients: add at least one", code="no-clients")
    # 0.29 * 50 is 14.499999999999998 in floats; the small addition makes such halves round up.
    return max(1, math.floor(fraction * clients + 0.5 + 1e-9))


def choose(names: Sequence[str], fraction: float, rng: np.random.Generator) -> list[str]:
    """m clients, sampled uniformly without replacement, in their original order."""
    count = participants(len(names), fraction)
    taken = np.sort(rng.choice(len(names), count, replace=False))
    return [names[int(index)] for index in taken]


def groups(names: Sequence[str], count: int, rng: np.random.Generator) -> list[list[str]]:
    """Split the m sampled clients at random into `count` groups of floor(m / count); the first groups get the rest.

    Every client is in exactly one group, so it trains exactly one individual.
    """
    if count < 1:
        raise ConfigError(f"population = {count}: must be at least 1", code="invalid-setting")
    if len(names) < count:
        raise ConfigError(
            f"{len(names)} clients cannot train a population of {count}: each individual needs at least one client; "
            f"set the population to {len(names)} or less, or sample more clients",
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
    """Partition clients into `count` non-empty groups of client numbers, ascending, with similar label distributions.

    `labels` are rows per class. None (a client that does not report them) is read as the mean distribution of those
    that do; if no client reports labels, only sizes matter. `balance` limits the ratio of the largest to the smallest
    group; if every choice exceeds it, the one that exceeds it least is taken. Ties go to the first group, and among
    clients of equal size to the first client.
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
            # The other groups do not change, so minimising the change minimises the mean distance.
            chosen = int(np.lexsort((np.round(after - before, DIGITS), np.round(excess, DIGITS)))[0])
        groups[chosen].append(client)
        totals[chosen] += sizes[client]
        counts[chosen] += known[client]
    return [sorted(group) for group in groups]


def distance(labels: Sequence[Sequence[int]], group: Sequence[int]) -> float:
    """The L1 distance between the label distributions of this group and of all clients: 0 (equal) to 2 (disjoint)."""
    rows = np.asarray(labels, dtype=np.float64)
    own, total = rows[list(group)].sum(axis=0, keepdims=True), rows.sum(axis=0, keepdims=True)
    return float(np.abs(_shares(own) - _shares(total)).sum())


def _class_counts(sizes: Sequence[int], labels: Sequence[Sequence[int] | None]) -> Floats:
    """Rows per class of every client; clients that do not report them get the mean distribution."""
    known = [np.asarray(row, dtype=np.float64) for row in labels if row is not None]
    if not known:
        return np.asarray(sizes, dtype=np.float64).reshape(-1, 1)  # one class for all: every distance is 0
    average = _shares(np.sum(known, axis=0, keepdims=True))[0]
    pairs = zip(sizes, labels, strict=True)
    return np.array([average * size if row is None else row for size, row in pairs], dtype=np.float64)


def _shares(counts: Floats) -> Floats:
    """Each row normalised to sum 1; a row of zeros stays zero."""
    sums = counts.sum(axis=1, keepdims=True)
    return counts / np.where(sums > 0, sums, 1.0)


def _excess(totals: Floats, size: int, balance: float) -> Floats:
    """For every group: by how many rows the largest group would be too large if this group took the client, else 0."""
    first, second = np.sort([*totals, np.inf])[:2]
    # The smallest group stays the smallest unless it grows; then it is itself or the second smallest.
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
    """For each client, in the order of `rates`, the index of its sub-model; a one-to-one assignment.

    adaptive   the largest sub-model to the fastest link; ties at random, so that no client always gets the largest
    random     a random permutation
    same       in order: sub-models are treated as equally large, so there is nothing to sort

    A rate of None is unknown. If all rates are unknown, `adaptive` keeps the order; otherwise unknown rates count as
    the slowest.
    """
    if len(sizes) != len(rates):
        raise ConfigError(
            f"{len(sizes)} sub-models for {len(rates)} clients: give exactly one per client",
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
    """The size sent to each client, for comparing latencies; under `same`, every sub-model has the mean size."""
    if rule == "same":
        return [sum(sizes) / len(sizes)] * len(sizes)
    return [sizes[number] for number in order]


def _known(rate: float | None) -> float:
    return -1.0 if rate is None else rate


def balanced_paths(clients: int, blocks: int, branches: int, rng: np.random.Generator) -> list[list[int]]:
    """One path of branches for each client, in which every branch of a block occurs equally often, up to one."""
    columns = []
    for _ in range(blocks):
        extra = rng.permutation(branches)[: clients % branches]
        column = np.concatenate([np.repeat(np.arange(branches), clients // branches), extra])
        columns.append(rng.permutation(column))
    paths: list[list[int]] = np.stack(columns, axis=1).astype(int).tolist()
    return paths
