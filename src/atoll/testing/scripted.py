"""Federations for tests: clients that answer by a script, that fail on demand, or that see only wire bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from atoll.core import wire
from atoll.core.messages import ClientInfo, Payload, Schema, Task
from atoll.federation.base import Federation
from atoll.federation.executor import words
from atoll.federation.transport import Envelope, Outcome, Transport

Answer = Callable[[Task], Payload]

SCHEMA = Schema("table", (2,), ("a", "b"), ("first", "second"))


class ScriptedFederation(Federation):
    """Clients named `names` whose reply to every task is what `answer(task)` returns, or raises.

    `tasks` lists what was sent, in order.
    """

    def __init__(
        self,
        names: Sequence[str],
        answer: Answer,
        schema: Schema = SCHEMA,
        rows: int = 10,
    ) -> None:
        self.tasks: list[Task] = []
        clients = [ClientInfo(name, {"train": rows, "validation": rows, "test": 0}, schema) for name in names]
        super().__init__(_ScriptedTransport(answer, self.tasks), clients)


class _ScriptedTransport(Transport):
    window = 1

    def __init__(self, answer: Answer, tasks: list[Task]) -> None:
        self._answer, self._tasks = answer, tasks
        self._outcomes: list[Outcome] = []

    def start(self, envelope: Envelope) -> None:
        self._tasks.append(envelope.task)
        try:
            payload = self._answer(envelope.task)
            self._outcomes.append(Outcome(envelope.order, payload, {}, wire.size(payload, digests=False)))
        except Exception as problem:
            self._outcomes.append(Outcome(envelope.order, error=words(problem)))

    def poll(self, timeout: float | None) -> list[Outcome]:
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    def abandon(self, order: int) -> None:
        self._outcomes = [outcome for outcome in self._outcomes if outcome.order != order]


class _Wrapper(Transport):
    """A transport that passes everything on to another one."""

    def __init__(self, inner: Transport) -> None:
        self.inner = inner
        self.window, self.queue, self.replies = inner.window, inner.queue, inner.replies

    def start(self, envelope: Envelope) -> None:
        self.inner.start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        return self.inner.poll(timeout)

    def abandon(self, order: int) -> None:
        self.inner.abandon(order)

    def saved(self, memory: Mapping[str, Payload], since: int) -> None:
        self.inner.saved(memory, since)

    def close(self) -> None:
        self.inner.close()


class FaultyTransport(_Wrapper):
    """Turns the outcomes of tasks into failures where `fails(task, round)` is true."""

    def __init__(self, inner: Transport, fails: Callable[[Task, int], bool]) -> None:
        super().__init__(inner)
        self._fails = fails
        self._doomed: set[int] = set()

    def start(self, envelope: Envelope) -> None:
        if self._fails(envelope.task, envelope.round):
            self._doomed.add(envelope.order)
        super().start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        return [
            Outcome(outcome.order, error="made to fail") if outcome.order in self._doomed else outcome
            for outcome in super().poll(timeout)
        ]


class StrictTransport(_Wrapper):
    """Encodes and decodes everything that clients and server exchange; a value that the wire cannot carry raises."""

    def start(self, envelope: Envelope) -> None:
        payload = wire.decode(wire.encode(envelope.task.payload))
        memory = wire.decode(wire.encode(envelope.memory))
        super().start(replace(envelope, task=replace(envelope.task, payload=payload), memory=memory))

    def poll(self, timeout: float | None) -> list[Outcome]:
        return [
            outcome
            if outcome.error is not None
            else replace(
                outcome,
                payload=wire.decode(wire.encode(outcome.payload or {}, digests=False)),
                memory=wire.decode(wire.encode(outcome.memory or {}, digests=False)),
            )
            for outcome in super().poll(timeout)
        ]
