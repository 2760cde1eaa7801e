"""Choice keys: which of its four branches every block of the master takes.

A key is a tuple of branch numbers, one per block, or the same as bits: two per block, most significant first
(00 identity, 01, 10, 11: the branches in the order of the space's words). Genetic operators work on the bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.errors import ArchitectureError

BRANCHES = 4

Key = tuple[int, ...]
Bits = npt.NDArray[np.bool_]


def check_key(key: Any, blocks: int) -> Key:
    """The key as a tuple, or an `ArchitectureError`: one branch number from 0 to 3 for each block."""
    if not isinstance(key, Sequence | np.ndarray) or isinstance(key, str):
        raise ArchitectureError(f"a key is a list of branch numbers, not {key!r}", code="malformed-key")
    if len(key) != blocks:
        raise ArchitectureError(
            f"key {_short(key)} has {len(key)} branches for {blocks} blocks: give one number each",
            code="key-length-mismatch",
        )
    return tuple(_branch(number, key) for number in key)


def to_bits(key: Iterable[int]) -> Bits:
    """Branch numbers to bits, as booleans: on integers `~` would give -1 and -2 instead of a flipped bit."""
    numbers = list(key)
    branches = np.array([_branch(number, numbers) for number in numbers], dtype=np.uint8)
    return np.stack([branches >= 2, branches % 2 == 1], axis=-1).reshape(-1)


def from_bits(bits: Iterable[Any]) -> Key:
    """Bits (booleans, or the numbers 0 and 1) to branch numbers."""
    values = list(bits)
    if len(values) % 2:
        raise ArchitectureError(
            f"a key of {len(values)} bits is odd: every block takes two bits, add or drop one", code="odd-bit-count"
        )
    for value in values:
        if value not in (0, 1):
            raise ArchitectureError(f"{value!r} in key {_short(values)} is not a bit: use 0 and 1", code="not-a-bit")
    return tuple(2 * int(high) + int(low) for high, low in zip(values[::2], values[1::2], strict=True))


def random_keys(count: int, blocks: int, rng: np.random.Generator) -> list[Key]:
    """Keys drawn uniformly, all different as long as there are so many."""
    keys: dict[Key, None] = {}
    while len(keys) < min(count, BRANCHES**blocks):
        keys[tuple(int(number) for number in rng.integers(BRANCHES, size=blocks))] = None
    drawn = list(keys)
    return [drawn[index % len(drawn)] for index in range(count)]


def _branch(number: Any, key: Sequence[Any] | npt.NDArray[Any]) -> int:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    if not whole or not 0 <= number < BRANCHES:
        raise ArchitectureError(
            f"branch {number!r} in key {_short(key)} does not exist: use 0 to {BRANCHES - 1}", code="unknown-branch"
        )
    return int(number)


def _short(key: Sequence[Any] | npt.NDArray[Any]) -> str:
    """The key for a message; a long one is cut, since a message is one line."""
    words = [str(item) for item in key]
    return "[" + ",".join(words[:30]) + (",..." if len(words) > 30 else "") + "]"
