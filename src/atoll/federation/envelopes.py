"""What travels between the desk and its clients, and how it is written down while a run is stopped."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from atoll.core import checks, wire
from atoll.core.messages import Payload, Reply, Task, TaskSize


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
    sent: float = 0.0  # when, by the federation's own clock; engines that work in real time need none


@dataclass(frozen=True)
class Outcome:
    """What came back from a client: a payload and its new memory, or an error in words."""

    order: int
    payload: Payload | None = None
    memory: Payload | None = None
    size: int = 0  # bytes of the payload on the wire
    error: str | None = None


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
    }


def _task_from_plain(row: Payload) -> Task:
    return Task(**{**row, "returns": checks.from_plain(row["returns"]), "size": TaskSize(**row["size"])})


def plain_envelope(envelope: Envelope) -> Payload:
    places = {"round": envelope.round, "number": envelope.number, "order": envelope.order}
    return {"task": _plain_task(envelope.task), **places, "size": envelope.size, "sent": envelope.sent}


def envelope_from_plain(row: Payload) -> Envelope:
    task = _task_from_plain(row["task"])
    digests = wire.tensor_digests(task.payload)
    return Envelope(task, row["round"], row["number"], row["order"], {}, digests, row["size"], row["sent"])


def plain_reply(order: int, reply: Reply) -> Payload:
    values = {"order": order, "round": reply.round, "payload": reply.payload, "error": reply.error}
    return {"task": _plain_task(reply.task), **values}


def reply_from_plain(row: Payload) -> Reply:
    return Reply(_task_from_plain(row["task"]), row["payload"], row["error"], row["round"])
