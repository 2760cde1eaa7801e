"""Worker processes of the local engine, and the process that they are forked from.

`python -m atoll.federation.worker` is a fork server: it imports torch and Atoll once, so that a worker starts in
milliseconds and shares this memory with all others. Its standard input is a socket. A request to start a worker comes
with three file descriptors (tasks, answers, log) and is answered by the number of the process; a request to stop one is
answered when it has ended. The fork server ends with the program that started it.

A worker does the tasks of one client after another. It reads and writes `wire` frames, each after its length. First
frame: where the data is, the seed, the device. Then one frame per task; the answer has a payload and the client's new
memory, or an error message. The functions for frames serve the server's side too.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from typing import BinaryIO

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.errors import WireError
from atoll.federation.executor import Executor

CAPACITY = 1 << 20  # bytes; the most that Linux allows without privileges
DESCRIPTORS = 3  # of a worker: its tasks, its answers, its log
NUMBER = 8  # bytes of a length or a process number on the socket


def main() -> None:
    control = socket.socket(fileno=os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    _import_shared(("torch", "atoll.clients.jobs"))
    started: set[int] = set()
    while (request := receive_request(control)) is not None:
        asked, descriptors = request
        if "stop" in asked:
            _stop(asked["stop"], started)
            answer = 0
        else:
            _import_shared(asked["preload"])
            answer = _fork(control, asked, descriptors)
            started.add(answer)
        for descriptor in descriptors:
            os.close(descriptor)
        control.sendall(answer.to_bytes(NUMBER, "little"))
    for worker in started.copy():
        _stop(worker, started)


def send_request(control: socket.socket, asked: Payload, descriptors: Sequence[int] = ()) -> int:
    """Ask the fork server, and wait for its answer. `OSError`: it has ended."""
    text = json.dumps(asked).encode()
    socket.send_fds(control, [len(text).to_bytes(NUMBER, "little")], list(descriptors))
    control.sendall(text)
    answer = _received(control, NUMBER)
    if answer is None:
        raise OSError("the fork server has ended")
    return int.from_bytes(answer, "little")


def receive_request(control: socket.socket) -> tuple[Payload, list[int]] | None:
    """The next request and its file descriptors; None when the program has ended."""
    head, descriptors, _, _ = socket.recv_fds(control, NUMBER, DESCRIPTORS)
    rest = _received(control, NUMBER - len(head)) if head else None
    if rest is None:
        return None
    text = _received(control, int.from_bytes(head + rest, "little"))
    return None if text is None else (json.loads(text), descriptors)


def _received(control: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        part = control.recv(count - len(data))
        if not part:
            return None
        data += part
    return data


def _import_shared(modules: Sequence[str]) -> None:
    """Import what all workers may share. What cannot be imported, and what is the user's own, is left to the worker,
    which reports it."""
    for module in modules:
        if module.split(".")[0] in ("torch", "atoll"):
            with contextlib.suppress(Exception):
                importlib.import_module(module)


def _fork(control: socket.socket, asked: Payload, descriptors: Sequence[int]) -> int:
    """Start a worker; its process number."""
    worker = os.fork()
    if worker:
        return worker
    try:
        control.close()
        os.setsid()  # Ctrl-C in the terminal is for the server, which stops its workers after a checkpoint
        _become(asked, descriptors)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def _become(asked: Payload, descriptors: Sequence[int]) -> None:
    """Take over folder, paths and environment of the program that asked, and do its tasks.

    Jobs may print and read, but the pipes are for frames only: what a job prints goes to the log, and its standard
    input is empty.
    """
    tasks, answers, log = descriptors
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.path[:] = asked["path"]
    importlib.invalidate_caches()
    # Both stay open to the end of this process: a closed pipe says that it has ended, and that its log is complete.
    reading, writing = open(tasks, "rb", buffering=0), open(answers, "wb", buffering=0)  # noqa: SIM115
    settings = read_frame(reading)
    if settings is not None:
        _serve(reading, writing, wire.decode(settings))


def _stop(worker: int, started: set[int]) -> None:
    """Kill a worker, which may have ended by itself, and wait for its end."""
    if worker in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
        os.waitpid(worker, 0)
        started.remove(worker)


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
