"""Frames of known length over a pipe, between the server and its worker processes."""

from __future__ import annotations

from typing import BinaryIO


def write(pipe: BinaryIO, frame: bytes) -> None:
    pipe.write(len(frame).to_bytes(8, "little"))
    pipe.write(frame)
    pipe.flush()


def read(pipe: BinaryIO) -> bytes | None:
    """The next frame, or None when the other side is gone."""
    length = _exactly(pipe, 8)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "little"))


def _exactly(pipe: BinaryIO, count: int) -> bytes | None:
    data = bytearray(count)
    view, filled = memoryview(data), 0
    while filled < count:
        got = pipe.readinto(view[filled:])  # type: ignore[attr-defined]
        if not got:
            return None
        filled += got
    return bytes(data)
