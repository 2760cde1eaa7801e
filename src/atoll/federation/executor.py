"""How a process does the tasks of clients: the job itself, and tasks and answers as `wire` frames.

`TaskEncoder` and `Executor` are for engines whose processes live as long as the run and so hold tensors themselves:
local workers and Ray.
"""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from atoll.core import checks, wire
from atoll.core.messages import REJECTED, Array, Payload, TaskSize
from atoll.errors import ConfigError, WireError
from atoll.federation.transport import Envelope, Outcome, work_digest
from atoll.rng import secret_stream, stream

if TYPE_CHECKING:
    from atoll.data import ClientData, Federated
    from atoll.training.client import Client


Job = Callable[[Payload, "Client"], Payload]

TOO_LARGE = ("frame-too-long", "header-too-long", "arrays-too-large", "out-of-memory")  # codes of a `WireError`


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
    """The job's reply and the client's new memory, both checked to be wire-legal.

    Under `[privacy]` a simulated client draws noise from a stream that is named by the work itself, so that no two
    different tasks share noise. A real site (one with a `size`) draws it from a secret stream, because anyone who has
    the seed knows the others.
    """
    from atoll.training.client import Client

    is_private = "privacy" in payload

    # A job may change its memory in place, and a failed task must leave it as it was: it works on a copy.
    own = wire.decode(wire.encode(memory, digests=False)) if memory else {}
    client = Client(data=data, memory=own, rng=stream(*stream_name), device=device, size=size)
    if is_private:
        seed, _, round_number, name, number = stream_name
        named = (seed, "noise", round_number, name, number)
        client.noise = secret_stream() if size is not None else stream(*named, work_digest(job, payload))
    try:
        answer = find_job(job)(payload, client)
    except ConfigError:
        raise  # it speaks of settings
    except Exception:
        if is_private:  # the text of an error may hold values of rows
            raise RuntimeError("the work failed; under [privacy] the reason stays with the client") from None
        raise
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
    """The server's side: tasks for one process, with only those tensors that it lacks."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}  # digest -> round of its last use

    def encode(self, envelope: Envelope) -> bytes:
        """The task as a frame. The process forgets tensors that two rounds did not use."""
        forget = [digest for digest, used in self._held.items() if used < envelope.round - 1]
        for digest in forget:
            del self._held[digest]
        task = envelope.task
        encoded = {
            "client": task.client,
            "job": task.job,
            "payload": task.payload,
            "memory": envelope.memory,
            "round": envelope.round,
            "number": envelope.number,
            "forget": forget,
        }
        frame = wire.encode(encoded, self._held)
        self._held.update(dict.fromkeys(envelope.digests, envelope.round))
        return frame


class Executor:
    """The process's side: does the tasks of one client after another."""

    def __init__(self, federated: Federated, seed: int, device: str) -> None:
        self._federated, self._seed, self._device = federated, seed, device
        self._held: dict[str, Array] = {}

    def answer(self, frame: bytes | bytearray) -> bytes:
        """Do an encoded task: payload and new memory, or an error message."""
        task = wire.decode(frame, self._held)
        for digest in task["forget"]:
            self._held.pop(digest, None)
        for owner, name in wire.take_apart(task["payload"]).tensors:
            self._held[owner.digest(name)] = owner[name]
        drawing_from = stream_name(self._seed, task["round"], task["client"], task["number"])
        try:
            data = self._federated.client(task["client"])
            payload, memory = perform(task["job"], task["payload"], task["memory"], data, drawing_from, self._device)
            # Two frames, because only the payload's limits are known from the task.
            frame = wire.encode({"payload": payload, "error": None}, digests=False)
            return b"".join([len(frame).to_bytes(8, "little"), frame, wire.encode(memory, digests=False)])
        except (Exception, SystemExit) as problem:  # a client's failure is data, whatever it is
            frame = wire.encode({"payload": {}, "error": words(problem)})
            return b"".join([len(frame).to_bytes(8, "little"), frame, wire.encode({})])


def longest_answer(envelope: Envelope) -> int:
    """The most bytes of an answer to this envelope, the client's memory included."""
    return 8 + checks.limits(envelope.task.returns).frame + checks.UNDESCRIBED.frame


def outcome(envelope: Envelope, answer: bytes | bytearray) -> Outcome:
    """The outcome that an answer reports for its envelope."""
    view = memoryview(answer)
    end = 8 + int.from_bytes(view[:8], "little")
    try:
        found = wire.decode(view[8:end], digests=False, limits=checks.limits(envelope.task.returns))
        memory = wire.decode(view[end:], digests=False, limits=checks.UNDESCRIBED)
    except WireError as problem:
        return refused(envelope, problem)
    if found.get("error") is not None:
        return Outcome(envelope.order, error=str(found["error"]))
    payload = found.get("payload")
    if not isinstance(payload, dict):
        return refused(envelope, WireError("the answer has no payload", code="payload-not-table"))
    return with_sound_memory(envelope, Outcome(envelope.order, payload, memory, wire.size(payload, digests=False)))


def with_sound_memory(envelope: Envelope, found: Outcome) -> Outcome:
    """The outcome, or a rejection if the client's memory, which the server holds for it, is not what it may be."""
    reason = checks.inspect_memory(found.memory, envelope.task.remembers) if found.memory else None
    return found if reason is None else Outcome(envelope.order, error=f"{REJECTED}{reason}", rejected=True)


def refused(envelope: Envelope, problem: WireError) -> Outcome:
    """The outcome of an answer that is not read: it is too long, or not a frame at all."""
    rule = "size" if problem.code in TOO_LARGE else "frame"
    return Outcome(envelope.order, error=f"{REJECTED}{rule}: {problem}", rejected=True)


def check_size(envelope: Envelope, size: int) -> WireError | None:
    """What `wire.decode` would say of an answer that never was a frame."""
    limits = checks.limits(envelope.task.returns)
    if size > limits.frame:
        return WireError(f"the answer has {size} bytes; at most {limits.frame} are accepted", code="frame-too-long")
    return None
