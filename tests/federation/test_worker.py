"""Frames arrive whole or not at all."""

from __future__ import annotations

import fcntl
import io
import os
from typing import Any

import pytest

from atoll.errors import WireError
from atoll.federation.worker import CAPACITY, read_frame, widen_pipe, write_frame
from refusals import refused


class Reluctant(io.BytesIO):
    """Takes three bytes at a time, as an unbuffered pipe may."""

    def write(self, data: Any) -> int:
        return super().write(bytes(data[:3]))


def test_a_frame_is_its_length_and_its_bytes() -> None:
    target = io.BytesIO()
    write_frame(target, b"frame")
    assert target.getvalue() == b"\x05\0\0\0\0\0\0\0frame"


def test_frames_come_back_in_order_and_then_nothing() -> None:
    target = Reluctant()
    for frame in (b"first of two", b"", b"second"):
        write_frame(target, frame)
    target.seek(0)
    assert [read_frame(target) for _ in range(4)] == [b"first of two", b"", b"second", None]


@pytest.mark.parametrize("length", [3, 8, 10])
def test_a_frame_that_breaks_off_is_none(length: int) -> None:
    target = io.BytesIO()
    write_frame(target, b"frame")
    assert read_frame(io.BytesIO(target.getvalue()[:length])) is None


def test_a_frame_beyond_the_limit_is_refused_by_its_length_alone() -> None:
    lying = io.BytesIO((2**62).to_bytes(8, "little"))
    with refused(WireError, "frame-too-long", 2**62, 100):
        read_frame(lying, 100)
    lying.seek(0)
    with refused(WireError, "out-of-memory", 2**62):
        read_frame(lying)


def test_a_widened_pipe_takes_a_small_model_without_a_reader() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb", buffering=0) as source, os.fdopen(writing, "wb", buffering=0) as target:
        widen_pipe(target)
        if fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) < CAPACITY:
            return  # the system does not allow this user so much; `widen_pipe` must not fail, and did not
        model = os.urandom(800_000)
        write_frame(target, model)  # would wait for ever on a pipe of the usual 64 kB
        assert read_frame(source) == model


def test_what_cannot_be_widened_stays_as_it_is(tmp_path: Any) -> None:
    with open(tmp_path / "file", "wb") as file:
        widen_pipe(file)
        write_frame(file, b"frame")
    assert (tmp_path / "file").stat().st_size == 13
