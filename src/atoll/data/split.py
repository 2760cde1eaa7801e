"""Each client's own train, validation and test rows.

Every part has no rows or at least two. A client's split depends only on the seed, its name and its own rows, so adding
a client never changes the split of another. All clients are split at once; only the random numbers are drawn client by
client.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from atoll.data.partition import MINIMUM, Indices, Partition
from atoll.errors import DataError
from atoll.rng import stream

Blocks = Literal["random", "shuffled", "contiguous", "by_class", "official"]
Shares = tuple[float, float, float]  # train, validation, test


def check_shares(shares: Shares) -> None:
    """Refuse shares that are negative, leave no training rows or do not sum to 1."""
    shown = "/".join(f"{share:g}" for share in shares)
    if len(shares) != 3 or not all(np.isfinite(share) and 0 <= share <= 1 for share in shares):
        raise DataError(
            f"split {shown}: three shares between 0 and 1 (train, validation, test); write 0.6, 0.2, 0.2",
            code="invalid-split",
        )
    if abs(sum(shares) - 1) > 1e-6:
        raise DataError(
            f"split {shown}: the shares sum to {sum(shares):g}, not 1; write for instance 0.6, 0.2, 0.2",
            code="invalid-split",
        )
    if shares[0] <= 0:
        raise DataError(
            f"split {shown}: no rows are left to train on; the first share must be above 0", code="invalid-split"
        )


def counts(sizes: Indices, shares: Shares) -> Indices:
    """Rows per client and part, clients x 3.

    Shares are rounded to whole rows; a part of one row takes a second one. If that leaves fewer than two training
    rows, the test part is dropped first, then the validation part.
    """
    parts: Indices = np.floor(sizes[:, None] * np.array(shares) + 0.5 + 1e-9).astype(np.int64)
    parts[parts == 1] = MINIMUM
    parts[:, 0] = sizes - parts[:, 1] - parts[:, 2]
    for part in (2, 1):
        short = parts[:, 0] < MINIMUM
        parts[short, 0] += parts[short, part]
        parts[short, part] = 0
    return parts


def split(
    partition: Partition, labels: Indices, names: list[str], shares: Shares, seed: int, blocks: Blocks = "random"
) -> tuple[Indices, Indices]:
    """Order each client's rows part by part: (rows, bounds), client `i`'s part `p` being
    `rows[bounds[i, p]:bounds[i, p + 1]]`.

    blocks:
        random      stratified: in every part a class has its share of rows, within one row (small clients: two)
        shuffled    at random, whatever the classes: which part a row is in says nothing of any label
        contiguous  the client's rows in their order: the first block is for training, the next for validation, the last
                    for testing
        by_class    the same within every class: stratified, with only two boundaries per class of a time series
    """
    check_shares(shares)
    sizes = partition.sizes
    if len(sizes) and int(sizes.min()) < MINIMUM:
        client = int(sizes.argmin())
        raise DataError(
            f"client '{names[client]}' has {sizes[client]} row{'' if sizes[client] == 1 else 's'}; every client needs "
            f"at least {MINIMUM}: use fewer clients or another partition, or leave this client out",
            code="too-few-rows",
        )
    wanted = counts(sizes, shares)
    bounds = partition.offsets[:-1, None] + np.concatenate([np.zeros((len(sizes), 1), int), wanted.cumsum(1)], axis=1)
    owner = partition.owners()
    # A client's rows are in the order of the data, so that time series stay in order; only the split shuffles.
    rows = partition.rows[np.lexsort((partition.rows, owner))]
    if blocks == "contiguous":
        return rows, bounds
    if blocks == "shuffled":
        labels = np.zeros_like(labels)
    keys, offset = _draw(partition, names, seed)
    classed = np.lexsort((keys, labels[rows], owner))
    part = _stratify(partition, wanted, offset, owner)
    if blocks != "by_class":
        order = np.lexsort((keys[classed], part, owner))
        return rows[classed][order], bounds
    in_time = np.lexsort((rows, labels[rows], owner))
    part = part[np.lexsort((part, labels[rows][classed], owner))]  # each class's part numbers, ascending
    return rows[in_time][np.lexsort((rows[in_time], part, owner))], bounds


def as_published(partition: Partition, parts: Indices, names: list[str]) -> tuple[Indices, Indices]:
    """As `split`, for data that comes with the part (0, 1, 2) of every row."""
    owner = partition.owners()
    given = parts[partition.rows]
    rows = partition.rows[np.lexsort((partition.rows, given, owner))]
    sizes = np.zeros((len(partition.sizes), 3), np.int64)
    np.add.at(sizes, (owner, given), 1)
    short = np.flatnonzero((sizes[:, 0] < MINIMUM) | (sizes == 1).any(axis=1))
    if len(short):
        raise DataError(
            f"client '{names[int(short[0])]}' has too few rows in a published part; leave it out, or set data.blocks",
            code="published-part-too-small",
        )
    bounds = partition.offsets[:-1, None] + np.concatenate([np.zeros((len(sizes), 1), int), sizes.cumsum(1)], axis=1)
    return rows, bounds


def _draw(partition: Partition, names: list[str], seed: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """A random number for every row, and two for every client, from each client's own stream."""
    keys = np.empty(len(partition.rows))
    offset = np.empty((partition.clients, 2))
    start = 0
    for client, (name, end) in enumerate(zip(names, partition.offsets[1:].tolist(), strict=True)):
        drawn = stream(seed, "split", name).random(end - start + 2)
        keys[start:end] = drawn[2:]
        offset[client] = drawn[:2]
        start = end
    return keys, offset


def _stratify(partition: Partition, wanted: Indices, offset: npt.NDArray[np.float64], owner: Indices) -> Indices:
    """The part of every position when each client's rows are sorted by class.

    Systematic sampling: the test rows are taken at equal distances along the sorted rows, then the validation rows
    along what remains. Equal distances stratify; the client's random offset keeps small clients from always losing
    the same classes.
    """
    sizes = partition.sizes
    position = np.arange(len(owner)) - np.repeat(partition.offsets[:-1], sizes)
    test = _every(position, sizes[owner], wanted[owner, 2], offset[owner, 0])
    taken: Indices = np.concatenate([[0], np.cumsum(test)])
    before = taken[:-1] - taken[partition.offsets[:-1]][owner]
    rest = sizes - wanted[:, 2]
    validation = _every(position - before, rest[owner], wanted[owner, 1], offset[owner, 1]) & ~test
    return np.where(test, 2, np.where(validation, 1, 0))


def _every(position: Indices, total: Indices, take: Indices, offset: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Exactly `take` of the positions 0 ... total-1, evenly spaced, starting at a random position."""
    start = np.floor(offset * total).astype(np.int64)
    chosen: npt.NDArray[np.bool_] = ((position + 1) * take + start) // total > (position * take + start) // total
    return chosen
