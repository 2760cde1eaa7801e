"""Clients in groups of about equal size whose labels are spread like everybody's (Yuan et al., section 4.2).

    minimise the mean over groups of the Manhattan distance between a group's label distribution and everybody's,
    subject to max(d) <= r * min(d) for the groups' sizes d

solved greedily, as the paper does: the largest client that is left goes to the group that keeps the balance and gives
the smallest mean distance.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from atoll.errors import ConfigError

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
    known = _filled_in(sizes, labels)
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


def _filled_in(sizes: Sequence[int], labels: Sequence[Sequence[int] | None]) -> Floats:
    """Rows per class of every client; who does not tell is taken for average."""
    told = [np.asarray(row, dtype=np.float64) for row in labels if row is not None]
    if not told:
        return np.asarray(sizes, dtype=np.float64).reshape(-1, 1)  # one class for all: every distance is 0
    average = _shares(np.sum(told, axis=0, keepdims=True))[0]
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
