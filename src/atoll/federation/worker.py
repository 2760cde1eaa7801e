"""A worker process of the local engine: does the tasks of one client after another.

Started as `python -m atoll.federation.worker`. It reads and writes `wire` frames, each after its length, on its
standard input and output. First frame: where the data is, the seed, the device. Then one frame per task; the answer has
a payload and the client's new memory, or an error message. The functions for frames serve the server's side too.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os
from typing import BinaryIO

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.errors import WireError
from atoll.federation.executor import Executor

CAPACITY = 1 << 20  # bytes; the most that Linux allows without privileges


def main() -> None:
    # Jobs may print and read, but the pipes are for frames only: what a job prints goes to the error stream, and its
    # standard input is empty.
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    tasks = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    settings = read_frame(tasks)
    if settings is not None:
        _serve(tasks, answers, wire.decode(settings))


def _serve(tasks: BinaryIO, answers: BinaryIO, settings: Payload) -> None:
    from atoll.data import Federated

    for module in settings["preload"]:  # seconds that no task's deadline should pay for
        importlib.import_module(module)
    executor = Executor(Federated.attach(settings["data"]), settings["seed"], settings["device"])
    write_frame(answers, wire.encode({"ready": True}))
    while (frame := read_frame(tasks)) is not None:
        write_frame(answers, executor.answer(frame))


def widen_pipe(pipe: BinaryIO) -> None:
    """Make space for the whole model of a small network, where the system allows it.

    With the default 64 kB the writer would wait until the reader has been scheduled a dozen times.
    """
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETPIPE_SZ, CAPACITY)


def write_frame(pipe: BinaryIO, frame: bytes) -> None:
    _all(pipe, len(frame).to_bytes(8, "little"))
    _all(pipe, frame)
    pipe.flush()


def read_frame(pipe: BinaryIO, most: int | None = None) -> bytearray | None:
    """The next frame, or None when the other side has ended. One of more than `most` bytes is a `WireError`, and the
    pipe cannot be used after it."""
    head = _exactly(pipe, 8)
    if head is None:
        return None
    length = int.from_bytes(head, "little")
    if most is not None and length > most:
        raise WireError(f"the answer has {length} bytes; at most {most} are accepted", code="frame-too-long")
    try:
        return _exactly(pipe, length)
    except MemoryError:
        raise WireError(f"an answer of {length} bytes does not fit into memory", code="out-of-memory") from None


def _all(pipe: BinaryIO, data: bytes) -> None:
    """An unbuffered pipe may accept only a part, for instance when its process is stopped and continued."""
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


if __name__ == "__main__":
    main()
