"""Frames of known length over a pipe, between the server and its worker processes."""

from __future__ import annotations

import contextlib
import fcntl
from typing import BinaryIO

CAPACITY = 1 << 20  # bytes; what Linux lets anybody have


def widen(pipe: BinaryIO) -> None:
    """Make room for the whole model of a small network, where the system allows it.

    With the usual 64 kB the side that writes waits until the other side has been given a processor a dozen times.
    """
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, CAPACITY)


def write(pipe: BinaryIO, frame: bytes) -> None:
    _all(pipe, len(frame).to_bytes(8, "little"))
    _all(pipe, frame)
    pipe.flush()


def read(pipe: BinaryIO) -> bytearray | None:
    """The next frame, or None when the other side is gone."""
    length = _exactly(pipe, 8)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "little"))


def _all(pipe: BinaryIO, data: bytes) -> None:
    """An unbuffered pipe may take less than it is given, for instance when its process is stopped and continued."""
    view, done = memoryview(data), 0
    while done < len(view):
        done += pipe.write(view[done:])


def _exactly(pipe: BinaryIO, count: int) -> bytearray | None:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        got = pipe.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            return None
        filled += got
    return data
