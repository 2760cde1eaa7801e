"""A worker process of the local engine: plays one client after another. Started as `python -m atoll.federation.worker`.

It speaks `wire` frames over its standard input and output. First frame: where the data is, the seed, the device. Then
one frame a task; the reply carries a payload and the client's new memory, or an error in words.
"""

from __future__ import annotations

import importlib
import os
from typing import BinaryIO

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.federation import pipe
from atoll.federation.executor import Executor


def main() -> None:
    # Jobs may print and read; the pipes are for frames only, so they move aside: printing goes to the error stream, and
    # there is nothing to read.
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    tasks = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    hello = pipe.read(tasks)
    if hello is not None:
        _serve(tasks, replies, wire.decode(hello))


def _serve(tasks: BinaryIO, replies: BinaryIO, settings: Payload) -> None:
    from atoll.data import Federated

    for module in ("torch", *settings["preload"]):  # seconds that no task's deadline should pay for
        importlib.import_module(module)
    player = Executor(Federated.attach(settings["data"]), settings["seed"], settings["device"])
    pipe.write(replies, wire.encode({"ready": True}))
    while (frame := pipe.read(tasks)) is not None:
        pipe.write(replies, player.answer(frame))


if __name__ == "__main__":
    main()
