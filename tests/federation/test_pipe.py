"""Frames arrive whole or not at all."""

from __future__ import annotations

import fcntl
import io
import os
from typing import Any

import pytest

from atoll.federation import pipe


class Reluctant(io.BytesIO):
    """Takes three bytes at a time, as an unbuffered pipe may."""

    def write(self, data: Any) -> int:
        return super().write(bytes(data[:3]))


def test_a_frame_is_its_length_and_its_bytes() -> None:
    target = io.BytesIO()
    pipe.write(target, b"frame")
    assert target.getvalue() == b"\x05\0\0\0\0\0\0\0frame"


def test_frames_come_back_in_order_and_then_nothing() -> None:
    target = Reluctant()
    for frame in (b"first of two", b"", b"second"):
        pipe.write(target, frame)
    target.seek(0)
    assert [pipe.read(target) for _ in range(4)] == [b"first of two", b"", b"second", None]


@pytest.mark.parametrize("length", [3, 8, 10])
def test_a_frame_that_breaks_off_is_none(length: int) -> None:
    target = io.BytesIO()
    pipe.write(target, b"frame")
    assert pipe.read(io.BytesIO(target.getvalue()[:length])) is None


def test_a_widened_pipe_takes_a_small_model_without_a_reader() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as target:
        pipe.widen(target)
        if fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) < pipe.CAPACITY:
            return  # the system does not give so much to this user; `widen` must be content, and was
        model = os.urandom(800_000)
        pipe.write(target, model)  # would wait for ever on a pipe of the usual 64 kB
        assert pipe.read(source) == model


def test_what_cannot_be_widened_stays_as_it_is(tmp_path: Any) -> None:
    with open(tmp_path / "file", "wb") as file:
        pipe.widen(file)
        pipe.write(file, b"frame")
    assert (tmp_path / "file").stat().st_size == 13
