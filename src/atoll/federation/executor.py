"""What the server and a process that plays clients write to each other: tasks as letters, answers as frames.

Used by every engine whose processes live as long as the run and so can hold tensors themselves: local workers, Ray.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from atoll.core import wire
from atoll.core.messages import Array, Payload, TaskSize
from atoll.errors import WireError
from atoll.federation.envelopes import Envelope, Outcome
from atoll.rng import stream

if TYPE_CHECKING:
    from atoll.data import ClientData, Federated
    from atoll.training.client import Client


Job = Callable[[Payload, "Client"], Payload]


def find_job(name: str) -> Job:
    """The function behind `module:name`, from the module's own `JOBS` table."""
    module_name, _, job_name = name.partition(":")
    jobs: dict[str, Job] = importlib.import_module(module_name).JOBS
    return jobs[job_name]


def perform(
    job: str,
    payload: Payload,
    memory: Payload,
    data: ClientData,
    stream_name: tuple[int, str, int, str, int],
    device: str,
    size: TaskSize | None = None,
) -> tuple[Payload, Payload]:
    """The job's reply and the client's new memory, both checked to be wire-legal."""
    from atoll.training.client import Client

    # A job may change its memory in place, and a failed task must leave it as it was: it works on a copy.
    own = wire.decode(wire.encode(memory, digests=False)) if memory else {}
    client = Client(data=data, memory=own, rng=stream(*stream_name), device=device, size=size)
    answer = find_job(job)(payload, client)
    for what, value in (("reply", answer), ("memory", client.memory)):
        if not isinstance(value, dict):
            raise TypeError(f"a job's {what} must be a table, not a {type(value).__name__}")
        wire.take_apart(value)
    return answer, client.memory


def words(problem: BaseException) -> str:
    """A client's failure in one line: what it was and where."""
    frames = traceback.extract_tb(problem.__traceback__)
    where = f" ({frames[-1].name}, line {frames[-1].lineno})" if frames else ""
    text = " ".join(str(problem).split())[:300]
    return f"{type(problem).__name__}: {text}{where}"


def stream_name(seed: int, round_number: int, client: str, number: int) -> tuple[int, str, int, str, int]:
    """Contract, point 4: what a client's random stream is named by."""
    return (seed, "client", round_number, client, number)


class TaskEncoder:
    """The server's side: which tensors one process holds, and letters with those that it lacks."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # digest -> round of its last use

    def write(self, envelope: Envelope) -> bytes:
        """The task as a letter; the process may forget what two rounds did not use."""
        forget = [digest for digest, used in self._held.items() if used < envelope.round - 1]
        for digest in forget:
            del self._held[digest]
        task = envelope.task
        letter = {
            "client": task.client,
            "job": task.job,
            "payload": task.payload,
            "memory": envelope.memory,
            "round": envelope.round,
            "number": envelope.number,
            "forget": forget,
        }
        frame = wire.encode(letter, self._held)
        self._held.update(dict.fromkeys(envelope.digests, envelope.round))
        return frame


class Executor:
    """The process's side: plays one client after another."""

    def __init__(self, federated: Federated, seed: int, device: str) -> None:
        self._federated, self._seed, self._device = federated, seed, device
        self._held: dict[str, Array] = {}

    def answer(self, frame: bytes | bytearray) -> bytes:
        """Do the task of a letter: payload and new memory, or an error in words."""
        letter = wire.decode(frame, self._held)
        for digest in letter["forget"]:
            self._held.pop(digest, None)
        for owner, name in wire.take_apart(letter["payload"]).tensors:
            self._held[owner.digest(name)] = owner[name]
        drawing_from = stream_name(self._seed, letter["round"], letter["client"], letter["number"])
        try:
            data = self._federated.client(letter["client"])
            payload, memory = perform(
                letter["job"], letter["payload"], letter["memory"], data, drawing_from, self._device
            )
            return wire.encode({"payload": payload, "memory": memory, "error": None}, digests=False)
        except (Exception, SystemExit) as problem:  # a client's failure is data, whatever it is
            return wire.encode({"payload": {}, "memory": {}, "error": words(problem)})


def outcome(envelope: Envelope, frame: bytes | bytearray) -> Outcome:
    """What an answer says of its envelope."""
    try:
        answer = wire.decode(frame, digests=False)
    except WireError as problem:
        return Outcome(envelope.order, error=words(problem))
    if answer["error"] is not None:
        return Outcome(envelope.order, error=answer["error"])
    size = wire.size(answer["payload"], digests=False)
    return Outcome(envelope.order, answer["payload"], answer["memory"], size)
