"""The only source of randomness: named, independent streams.

A stream is named by the run's seed and a sequence of strings and integers, for instance
`stream(seed, "client", round, name, number)`. Equal names give equal streams on every machine, and adding a stream
never changes another one.

Only noise of real sites under `[privacy]` must not be known to anyone who knows the seed: see `secret_stream`.
"""

from __future__ import annotations

import hashlib
import os

import numpy as np

Generator = np.random.Generator


def stream(seed: int, *names: str | int) -> Generator:
    """The random stream of this name. Strings and integers are distinguished: `1` and `"1"` are different names."""
    digest = hashlib.sha256()
    for part in (seed, *names):
        if isinstance(part, bool) or not isinstance(part, (int, str)):
            raise TypeError(f"{part!r} in a stream's name: use strings and integers")
        text = f"{'i' if isinstance(part, int) else 's'}{part}".encode()
        digest.update(len(text).to_bytes(8, "big"))
        digest.update(text)
    return np.random.Generator(np.random.PCG64(int.from_bytes(digest.digest(), "big")))


def secret_stream() -> Generator:
    """A stream that begins at a place drawn from the system's randomness; it cannot be drawn again."""
    return np.random.Generator(np.random.PCG64(int.from_bytes(os.urandom(32), "big")))
