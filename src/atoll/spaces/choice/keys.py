"""Choice keys: the branch that each block of the master uses.

A key is a tuple of branch numbers, one per block, or the same as bits: two per block, most significant first (00 is the
identity, then the branches in the order of the plan's `branch_names`). Genetic operators work on the bits.
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
    """The key as a tuple. Raises an `ArchitectureError` unless it has one branch number from 0 to 3 per block."""
    if not isinstance(key, Sequence | np.ndarray) or isinstance(key, str):
        raise ArchitectureError(f"key = {key!r}: give a list of branch numbers", code="malformed-key")
    if len(key) != blocks:
        raise ArchitectureError(
            f"key {_short(key)} has {len(key)} branches for {blocks} blocks: give one branch number per block",
            code="key-length-mismatch",
        )
    return tuple(_branch(number, key) for number in key)


def to_bits(key: Iterable[int]) -> Bits:
    """Branch numbers to bits, as booleans: on integers `~` would not flip the bit but give -1 and -2."""
    numbers = list(key)
    branches = np.array([_branch(number, numbers) for number in numbers], dtype=np.uint8)
    return np.stack([branches >= 2, branches % 2 == 1], axis=-1).reshape(-1)


def from_bits(bits: Iterable[Any]) -> Key:
    """Bits (booleans, or the numbers 0 and 1) to branch numbers."""
    values = list(bits)
    if len(values) % 2:
        raise ArchitectureError(
            f"a key of {len(values)} bits: every block takes two bits, so give an even number", code="odd-bit-count"
        )
    for value in values:
        if value not in (0, 1):
            raise ArchitectureError(f"{value!r} in key {_short(values)} is not a bit: use 0 and 1", code="not-a-bit")
    return tuple(2 * int(high) + int(low) for high, low in zip(values[::2], values[1::2], strict=True))


def random_keys(count: int, blocks: int, rng: np.random.Generator) -> list[Key]:
    """`count` keys drawn uniformly, all distinct unless `count` exceeds the number of keys."""
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
    """The key for a one-line message, truncated if it is long."""
    numbers = [str(item) for item in key]
    return "[" + ",".join(numbers[:30]) + (",..." if len(numbers) > 30 else "") + "]"
