"""What an engine adds: a `Transport`, which carries envelopes to clients and outcomes back.

Also how envelopes and replies are written into a checkpoint.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np

from atoll.core import checks, wire
from atoll.core.messages import Payload, Reply, Task, TaskSize, Tensors, content_name

LONGEST_TASK = 21_600.0  # seconds; a client that takes longer hangs, unless `engine.deadline` is longer


@dataclass(frozen=True)
class Envelope:
    """A task on its way, with all that its client needs to do it: the same envelope always gives the same outcome."""

    task: Task
    round: int
    number: int  # of the task within its client's round: names the random stream
    order: int  # of the task among all ever sent: decides the order of replies
    memory: Payload  # as the client's last outcome gave it; where the memory stays on the client, only its name
    digests: frozenset[str]
    size: int = 0  # bytes that travel to the client: what it holds already does not
    sent: float = 0.0  # when, in virtual seconds; real time needs none


@dataclass(frozen=True)
class Outcome:
    """What came back from a client: a payload and its new memory, or an error message."""

    order: int
    payload: Payload | None = None
    memory: Payload | None = None
    size: int = 0  # bytes of the payload on the wire
    error: str | None = None
    rejected: bool = False  # the error says why the answer was not even read: it is not the client's own message


class Transport(Protocol):
    """Carries envelopes to clients and outcomes back. One per engine."""

    window: int  # how many envelopes may be in progress or waiting for delivery at once, for each task of a queue
    queue: int = 1  # tasks that one client may be given at once: the others wait there until it has done the first
    replies: int = 0  # bytes: beyond the window, more envelopes may be in progress as long as their replies fit

    def start(self, envelope: Envelope) -> None:
        """Begin this envelope's work. Returns soon, or when the work is done if the engine is serial."""

    def poll(self, timeout: float | None) -> list[Outcome]:
        """Outcomes that have arrived; waits up to `timeout` seconds (None: as long as it takes) for at least one."""
        ...

    def abandon(self, order: int) -> None:
        """Give this envelope up; its outcome, if any, is not reported."""

    def saved(self, memory: Mapping[str, Payload], since: int) -> None:
        """A checkpoint with these memories of clients is on the disk; a run that continues from it sends no envelope
        with an order below `since` again. Only engines whose clients keep memories or replies need it."""
        return

    def close(self) -> None:
        """Release processes, connections and files."""
        return


def work_digest(job: str, payload: Payload) -> str:
    """A digest of what a task asks for: equal for equal work, whatever the order of its keys."""
    text = wire.canonical({"job": job, "payload": _named(payload)})
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _named(value: Any) -> Any:
    """A payload with digests in place of arrays."""
    if isinstance(value, Tensors):
        return {name: value.digest(name) for name in value}
    if isinstance(value, np.ndarray):
        return content_name(value)
    if isinstance(value, Mapping):
        return {key: _named(inner) for key, inner in value.items()}
    return [_named(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _plain_task(task: Task) -> Payload:
    return {
        "id": task.id,
        "client": task.client,
        "job": task.job,
        "payload": task.payload,
        "macs": task.macs,
        "returns": checks.to_plain(task.returns),
        "test_evaluation": task.test_evaluation,
        "size": asdict(task.size),
        "remembers": checks.to_plain(task.remembers),
    }


def _task_from_plain(row: Payload) -> Task:
    described = {name: checks.from_plain(row.get(name)) for name in ("returns", "remembers")}
    return Task(**{**row, **described, "size": TaskSize(**row["size"])})


def plain_envelope(envelope: Envelope) -> Payload:
    places = {"round": envelope.round, "number": envelope.number, "order": envelope.order}
    return {"task": _plain_task(envelope.task), **places, "size": envelope.size, "sent": envelope.sent}


def envelope_from_plain(row: Payload) -> Envelope:
    task = _task_from_plain(row["task"])
    digests = wire.tensor_digests(task.payload)
    return Envelope(task, row["round"], row["number"], row["order"], {}, digests, row["size"], row["sent"])


def plain_reply(order: int, reply: Reply) -> Payload:
    values = {"round": reply.round, "payload": reply.payload, "error": reply.error, "asked": reply.asked}
    return {"task": _plain_task(reply.task), "order": order, **values}


def reply_from_plain(row: Payload) -> Reply:
    return Reply(_task_from_plain(row["task"]), row["payload"], row["error"], row["round"], row["asked"])
