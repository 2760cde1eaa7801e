"""Partitions: rules that assign the rows of one data set to clients.

Pure NumPy; every row is assigned to exactly one client. A partition is one array of row numbers, client by client, and
the offset where each client starts, so ten thousand clients cost two arrays.
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from atoll.errors import DataError
from atoll.rng import Generator

Indices = npt.NDArray[np.int64]

MINIMUM = 2  # rows: batch norm needs two, and so does every split


class Partition(NamedTuple):
    """Client `i` holds `rows[offsets[i]:offsets[i + 1]]`."""

    rows: Indices
    offsets: Indices

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> Indices:
        return np.diff(self.offsets)

    def client(self, index: int) -> Indices:
        return self.rows[self.offsets[index] : self.offsets[index + 1]]

    def owners(self) -> Indices:
        """The client of every entry of `rows`."""
        return np.repeat(np.arange(self.clients), self.sizes)


def by_owner(owner: Indices, clients: int) -> Partition:
    """The partition in which row `r` belongs to client `owner[r]`; each client's rows stay in order."""
    sizes = np.bincount(owner, minlength=clients)
    return Partition(np.argsort(owner, kind="stable").astype(np.int64), _offsets(sizes))


def iid(labels: Indices, clients: int, rng: Generator) -> Partition:
    """Shuffle the rows and cut them into equal pieces (sizes differ by at most one row)."""
    _check_clients(len(labels), clients)
    return Partition(rng.permutation(len(labels)).astype(np.int64), _even_cuts(len(labels), clients))


def quantity(labels: Indices, clients: int, alpha: float, rng: Generator) -> Partition:
    """Quantity skew: classes are mixed evenly; client sizes follow one draw from Dirichlet(alpha)."""
    _check_clients(len(labels), clients)
    _check_alpha(alpha)
    spare = len(labels) - MINIMUM * clients
    cuts = _cuts(_dirichlet(alpha, clients, rng), spare)
    return Partition(rng.permutation(len(labels)).astype(np.int64), cuts + MINIMUM * np.arange(clients + 1))


def shards(labels: Indices, clients: int, per_client: int, rng: Generator) -> Partition:
    """Sort the rows by label and cut them into `clients * per_client` equal shards; each client draws `per_client`."""
    _check_clients(len(labels), clients)
    pieces = clients * per_client
    if per_client < 1:
        raise DataError(
            f"partition 'shards:{per_client}': a client needs at least 1 shard; write shards:2",
            code="invalid-partition-number",
        )
    if pieces > len(labels):
        raise DataError(
            f"{clients} clients with {per_client} shards each need {pieces} rows, but there are {len(labels)}; "
            "use fewer clients or fewer shards",
            code="too-many-shards",
        )
    ordered = np.argsort(labels, kind="stable")
    cuts = _even_cuts(len(labels), pieces)
    piece = np.repeat(np.arange(pieces), np.diff(cuts))
    holder = np.empty(pieces, dtype=np.int64)
    holder[rng.permutation(pieces)] = np.repeat(np.arange(clients), per_client)
    owner = np.empty(len(labels), dtype=np.int64)
    owner[ordered] = holder[piece]
    return by_owner(owner, clients)


def classes(labels: Indices, clients: int, per_client: int, total: int, rng: Generator) -> Partition:
    """Each client holds rows of exactly `per_client` of the `total` classes.

    Every class is held by the same number of clients (within one), and its rows are divided evenly among them.
    """
    _check_clients(len(labels), clients)
    if not 1 <= per_client <= total:
        raise DataError(
            f"partition 'classes:{per_client}': a client holds between 1 and {total} classes here; "
            f"write classes:{min(total, max(1, per_client))} or fewer",
            code="invalid-partition-number",
        )
    if clients * per_client < total:
        raise DataError(
            f"{clients} clients with {per_client} classes each cannot hold all {total} classes; "
            f"use at least {-(-total // per_client)} clients or more classes per client",
            code="classes-not-covered",
        )
    held = _assign_classes(clients, per_client, total, rng)
    owner = np.empty(len(labels), dtype=np.int64)
    for label in range(total):
        rows = rng.permutation(np.flatnonzero(labels == label))
        holders = rng.permutation(np.flatnonzero(held[:, label]))
        if len(rows) < len(holders):
            raise DataError(
                f"class number {label} has {len(rows)} rows for {len(holders)} clients; "
                "use fewer clients or fewer classes per client",
                code="class-rows-too-few",
            )
        owner[rows] = holders[np.arange(len(rows)) % len(holders)]
    return by_owner(owner, clients)


def _assign_classes(clients: int, per_client: int, total: int, rng: Generator) -> npt.NDArray[np.bool_]:
    """A random 0/1 table, clients x classes: rows sum to `per_client`, column sums differ by one at most."""
    slots = clients * per_client
    quota = np.full(total, slots // total)
    quota[rng.permutation(total)[: slots % total]] += 1
    held = np.zeros((clients, total), dtype=np.bool_)
    noise = rng.gumbel(size=(clients, total))
    for client in range(clients):
        # A class whose quota equals the number of clients left must be taken now, or it could never be filled.
        must = quota >= clients - client
        with np.errstate(divide="ignore"):
            score = np.where(must, np.inf, np.log(quota) + noise[client])
        chosen = np.argsort(-score, kind="stable")[:per_client]
        held[client, chosen] = True
        quota[chosen] -= 1
    return held


def dirichlet(
    labels: Indices, clients: int, alpha: float, total: int, rng: Generator, minimum: int = MINIMUM
) -> Partition:
    """Each class's rows are divided in shares drawn from Dirichlet(alpha) over the clients.

    A client with fewer than `minimum` rows takes random rows from the client that holds most at that moment.
    """
    _check_clients(len(labels), clients, minimum)
    _check_alpha(alpha)
    owner = np.empty(len(labels), dtype=np.int64)
    for label in range(total):
        rows = rng.permutation(np.flatnonzero(labels == label))
        cuts = _cuts(_dirichlet(alpha, clients, rng), len(rows))
        owner[rows] = np.repeat(np.arange(clients), np.diff(cuts))
    return by_owner(_top_up(owner, clients, minimum, rng), clients)


def _top_up(owner: Indices, clients: int, minimum: int, rng: Generator) -> Indices:
    """Move rows from the largest clients until no client holds fewer than `minimum`."""
    sizes = np.bincount(owner, minlength=clients)
    needy = np.flatnonzero(sizes < minimum)
    if not len(needy):
        return owner
    shuffled = rng.permutation(len(owner))
    rows = shuffled[np.argsort(owner[shuffled], kind="stable")]  # client by client, random within a client
    end = np.cumsum(sizes)
    donors = [(-int(size), client) for client, size in enumerate(sizes) if size > minimum]
    heapq.heapify(donors)
    owner = owner.copy()
    for client in needy:
        for _ in range(minimum - int(sizes[client])):
            # There are enough rows for all, so while a client is short the largest has more than the minimum.
            size, donor = donors[0]
            heapq.heapreplace(donors, (size + 1, donor))
            end[donor] -= 1
            owner[rows[end[donor]]] = client
    return owner


def natural(groups: Indices) -> Partition:
    """One client per group number 0, 1, 2, ...; rows stay in their order."""
    return by_owner(groups, int(groups.max()) + 1 if len(groups) else 0)


def _dirichlet(alpha: float, clients: int, rng: Generator) -> npt.NDArray[np.float64]:
    shares = rng.dirichlet(np.full(clients, alpha))
    if not np.isfinite(shares).all() or shares.sum() <= 0:
        # A vanishing alpha underflows; its limit is that one client takes all rows.
        shares = np.zeros(clients)
        shares[rng.integers(clients)] = 1.0
    return shares


def _cuts(shares: npt.NDArray[np.float64], rows: int) -> Indices:
    """Offsets that divide `rows` by shares, without losing any to rounding."""
    inner = np.floor(np.cumsum(shares)[:-1] * rows + 0.5).astype(np.int64)
    return np.concatenate([[0], np.minimum(inner, rows), [rows]])


def _even_cuts(rows: int, pieces: int) -> Indices:
    return np.arange(pieces + 1, dtype=np.int64) * rows // pieces


def _offsets(sizes: npt.NDArray[np.integer]) -> Indices:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _check_clients(rows: int, clients: int, minimum: int = MINIMUM) -> None:
    if clients < 1:
        raise DataError(
            f"{clients} clients: a federation has at least 1 client; set data.clients to 1 or more",
            code="no-clients",
        )
    if clients * minimum > rows:
        raise DataError(
            f"{clients} clients need at least {minimum} rows each, but there are only {rows} training rows; "
            f"use at most {rows // minimum} clients",
            code="too-many-clients",
        )


def _check_alpha(alpha: float) -> None:
    if not (np.isfinite(alpha) and alpha > 0):
        raise DataError(
            f"alpha {alpha}: a Dirichlet concentration is a number above 0; write for instance 0.5",
            code="invalid-partition-number",
        )
