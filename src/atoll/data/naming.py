"""Names of clients: stable, unique, and sorted by number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from atoll.core.messages import Array
from atoll.data.partition import Indices
from atoll.errors import DataError


def numbered(clients: int) -> list[str]:
    """client-000, client-001, ...: padded so that sorting by name is sorting by number."""
    width = max(3, len(str(clients - 1)))
    return [f"client-{number:0{width}d}" for number in range(clients)]


def check_names(names: Sequence[str]) -> None:
    """Names must be printable and unique."""
    seen: set[str] = set()
    for name in names:
        if not name.isprintable():
            raise DataError(
                f"client name {name!r} has characters that cannot be printed; rename the file or the client",
                code="invalid-client-name",
            )
        if name in seen:
            raise DataError(
                f"two clients are named '{name}'; every client needs a name of its own", code="duplicate-client-name"
            )
        seen.add(name)


def group_by_id(ids: Array, word: str) -> tuple[Indices, list[str]]:
    """Group numbers and names from one id per row: a word is its own name, the number 5 becomes "subject-05"."""
    if ids.ndim != 1 or ids.dtype.kind not in "uiU" or not len(ids):
        raise DataError(
            f"client ids of shape {ids.shape} and type {ids.dtype}: give one whole number or word per row",
            code="invalid-client-ids",
        )
    found, groups = np.unique(ids, return_inverse=True)
    if ids.dtype.kind == "U":
        names = [str(name) for name in found.tolist()]
    else:
        width = max(2, len(str(found.max())))
        names = [f"{word}-{number:0{width}d}" for number in found.tolist()]
    if "" in names:
        raise DataError(
            "a row has an empty client id; every row needs the name of its client", code="row-without-client"
        )
    return groups.astype(np.int64), names
