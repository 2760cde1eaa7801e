"""The Federation: how a method reaches clients, whatever machine they are on.

What an engine adds is a `Transport`: it carries envelopes to clients and outcomes back. Everything that must be the
same on every engine is here: names of random streams, what each client holds, bytes, order of replies, guard, ledger,
memory.

The contract (`atoll.testing.EngineContract` tests it):

1. `receive(at_least=k)` waits for k replies to the LAST send's tasks; late ones that arrive meanwhile come along.
   Order: older rounds first, then task order, never order of arrival.
2. A failed, silent or rejected client is a `Reply` with `error`; nothing raises, nothing hangs. A quorum that can no
   longer be met returns what there is.
3. A client does one task at a time; its memory lives on between tasks, and a failed task leaves it as it was.
4. A client's random stream is named by (seed, round, client, number of the task within its round).
5. `map` streams: at most a few replies that were not delivered yet are in memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from atoll.core import checks, wire
from atoll.core.ledger import Fate, Ledger
from atoll.core.messages import ClientInfo, Payload, Reply, Task
from atoll.federation.client_cache import Holdings
from atoll.federation.envelopes import (
    Envelope,
    Outcome,
    envelope_from_plain,
    plain_envelope,
    plain_reply,
    reply_from_plain,
)
from atoll.federation.replies import Replies

UNEXPECTED_REPLIES = 10  # that a round tells of: endless junk must not fill the log


class Transport(Protocol):
    """Carries envelopes to clients and outcomes back. One per engine."""

    window: int  # how many envelopes may be under way or waiting for delivery at once

    def start(self, envelope: Envelope) -> None:
        """Begin this envelope's work. Returns soon, or when the work is done if the engine is serial."""

    def poll(self, timeout: float | None) -> list[Outcome]:
        """Outcomes that have arrived; waits up to `timeout` seconds (None: as long as it takes) for at least one."""

    def abandon(self, order: int) -> None:
        """Stop caring for this envelope; its outcome, if any, is not reported."""

    def close(self) -> None:
        """Let go of processes, connections and files."""


class Federation:
    """The handle a method holds. See the module's contract."""

    def __init__(
        self,
        transport: Transport,
        clients: Sequence[ClientInfo],
        ledger: Ledger,
        benchmark: Sequence[ClientInfo] = (),
        deadline: float | None = None,
    ) -> None:
        self.round = 0
        self.ledger = ledger
        self.deadline = deadline
        self._transport = transport
        self._clients = list(clients)
        self._benchmark = list(benchmark)
        self._known = {info.name for info in (*clients, *benchmark)}
        self._memory: dict[str, Payload] = {}
        self._holdings = Holdings()
        self._numbers: dict[str, int] = {}  # of each client's next task in this round, for its random stream
        self._orders = 0
        self._last_send: set[int] = set()
        self._waiting: dict[int, Envelope] = {}  # sent, not started
        self._working: dict[int, Envelope] = {}  # started, no outcome yet
        self._done: dict[int, Reply] = {}  # replied, not delivered
        self._unexpected: list[str] = []  # replies of this round that nobody waits for

    # -- who there is ---------------------------------------------------------------------------------------------

    def clients(self) -> list[ClientInfo]:
        """All that the server may know of each client."""
        return self._clients

    def test_holders(self) -> list[ClientInfo]:
        """Who holds test data for the report: the benchmark's official test set, else the clients' own test parts."""
        return self._benchmark or [info for info in self._clients if info.sizes["test"] > 0]

    def begin(self, number: int, tried: int = 0) -> None:
        """Called by the run loop at the start of each round, which has failed so often before the run paused.

        That is for engines whose clients fail by lot; elsewhere a round that is tried again is the same round.
        """
        self.round = number
        self._unexpected.clear()
        self._numbers.clear()
        self.ledger.open_round()

    # -- talking to clients ---------------------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand tasks over. Their replies come from `receive`."""
        self._last_send = set()
        for task in tasks:
            self._enter(task)
        self._feed()

    def receive(self, at_least: int | None = None, deadline: float | None = None) -> list[Reply]:
        """Replies to the last send (and late ones to earlier sends): at least so many of the last (None: all).

        After a send of nothing, because everybody is busy, late replies are counted instead.
        """
        counted = self._last_send or {*self._waiting, *self._working}
        wanted = len(self._last_send) if at_least is None else min(at_least, len(counted))
        limit = deadline if deadline is not None else self.deadline
        end = None if limit is None else time.monotonic() + limit
        while len(counted & self._done.keys()) < wanted:
            self._feed()
            left = None if end is None else end - time.monotonic()
            if left is not None and left <= 0:
                break
            self._collect(left)
        self._feed()
        self._collect(0)
        return [self._deliver(order) for order in sorted(self._done)]

    def map(self, tasks: Sequence[Task]) -> Iterator[Reply]:
        """Send tasks and stream all their replies, in task order, until the federation's deadline."""
        self._last_send = set()
        orders = [self._enter(task) for task in tasks]
        self._feed(streaming=True)  # before the clock starts: an engine may have to start itself first
        end = None if self.deadline is None else time.monotonic() + self.deadline
        for order in orders:
            while order not in self._done:
                left = None if end is None else end - time.monotonic()
                if left is not None and left <= 0:
                    self._collect(0)
                    if order not in self._done:
                        self._give_up(order)
                    break
                self._feed(streaming=True)
                self._collect(left)
            yield self._deliver(order)

    def collect(self, tasks: Sequence[Task], minimum: int = 1, what: str = "a usable reply") -> Replies:
        """Send tasks and stream the good replies, in task order; see `Replies` for what becomes of the bad ones."""
        return Replies(self.map(tasks), len({task.client for task in tasks}), minimum, what)

    def forget(self, reply: Reply) -> None:
        """A method says that it threw a late reply away as stale."""
        self.ledger.changed_its_mind("late", "stale")

    def engine_events(self) -> Payload:
        """What the engine has to tell of the round for its event, beyond the ledger. Most have nothing."""
        return {"unexpected_replies": list(self._unexpected)} if self._unexpected else {}

    @property
    def busy(self) -> frozenset[str]:
        """Clients that have not done all they were asked to: a new task for one of them would have to wait."""
        under_way = (*self._waiting.values(), *self._working.values())
        return frozenset(envelope.task.client for envelope in under_way)

    @property
    def undelivered(self) -> int:
        """Replies that have arrived and wait in memory."""
        return len(self._done)

    # -- saving ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Payload:
        """Clients' memory, what each holds, and what is in flight. Only between rounds."""
        in_flight = {**self._waiting, **self._working}
        return {
            "orders": self._orders,
            "memory": dict(self._memory),
            "holds": self._holdings.to_plain(),
            "in_flight": [plain_envelope(in_flight[order]) for order in sorted(in_flight)],
            "done": [plain_reply(order, self._done[order]) for order in sorted(self._done)],
        }

    def restore(self, snapshot: Payload) -> None:
        """Go on from a snapshot: tasks in flight are started again and give the same outcomes."""
        self._orders = snapshot["orders"]
        self._memory = dict(snapshot["memory"])
        self._holdings = Holdings.from_plain(snapshot["holds"])
        for row in snapshot["in_flight"]:
            envelope = envelope_from_plain(row)
            self._waiting[envelope.order] = envelope
        for row in snapshot["done"]:
            self._done[row["order"]] = reply_from_plain(row)

    def saved(self, snapshot: Payload) -> None:
        """Called by the run loop when a checkpoint with this snapshot is on the disk."""

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the desk behind the counter --------------------------------------------------------------------------------

    def _enter(self, task: Task) -> int:
        """Book a task: its order, its stream's number, its bytes; remember what its client now holds."""
        order, self._orders = self._orders, self._orders + 1
        self._last_send.add(order)
        number = self._numbers.get(task.client, 0)
        self._numbers[task.client] = number + 1
        digests = wire.tensor_digests(task.payload)
        if task.client not in self._known:
            self._done[order] = Reply(task, error=f"there is no client {task.client!r}", round=self.round)
            return order
        size = 0 if task.test_evaluation else wire.size(task.payload, self._holdings.of(task.client))
        if not task.test_evaluation:
            self.ledger.sent(size)
            self._holdings.take(task.client, digests)
        self._waiting[order] = Envelope(task, self.round, number, order, {}, digests, size)
        return order

    def _feed(self, streaming: bool = False) -> None:
        """Start waiting envelopes in order, one at a time per client, as far as the transport's window allows.

        When streaming, replies on the shelf take up room too, so that they cannot pile up; but one task may always
        start, because the reply that is waited for may not be among them.
        """
        room = self._transport.window - len(self._working) - (len(self._done) if streaming else 0)
        room = max(room, 0 if self._working else 1)
        busy = {envelope.task.client for envelope in self._working.values()}
        chosen: list[Envelope] = []
        for envelope in self._waiting.values():
            if len(chosen) >= room:
                break
            if envelope.task.client not in busy:
                busy.add(envelope.task.client)
                chosen.append(envelope)
        for envelope in chosen:
            del self._waiting[envelope.order]
            started = replace(envelope, memory=self._memory.get(envelope.task.client, {}))
            self._working[envelope.order] = started
            self._transport.start(started)

    def _collect(self, timeout: float | None) -> None:
        """Take what has arrived: check it, keep the client's new memory, put the reply on the shelf."""
        if not self._working:
            return
        for outcome in self._transport.poll(timeout):
            envelope = self._working.pop(outcome.order, None)
            if envelope is not None:
                self._shelve(envelope, outcome)
            else:
                self._refuse(outcome)

    def _refuse(self, outcome: Outcome) -> None:
        """The server's own record decides: what answers no task under way is counted, told of, and never delivered."""
        self.ledger.received("rejected", outcome.size)
        asked = 0 <= outcome.order < self._orders
        reason = "was answered or given up already" if asked else "was never sent"
        if len(self._unexpected) < UNEXPECTED_REPLIES:
            self._unexpected.append(f"a reply to task {outcome.order}, which {reason}")

    def _shelve(self, envelope: Envelope, outcome: Outcome) -> None:
        """An outcome is here: judged, booked, and ready to be fetched."""
        reply, fate = self._judge(envelope, outcome)
        self._book(envelope.task, fate, outcome.size)
        self._done[envelope.order] = reply

    def _judge(self, envelope: Envelope, outcome: Outcome) -> tuple[Reply, Fate | None]:
        task = envelope.task
        if outcome.error is not None:
            return Reply(task, error=outcome.error, round=envelope.round), "failed"
        payload = outcome.payload or {}
        reason = checks.inspect(payload, task.returns)
        if reason is not None:
            return Reply(task, error=f"rejected, {reason}", round=envelope.round), "rejected"
        if outcome.memory:
            self._memory[task.client] = outcome.memory
        else:
            self._memory.pop(task.client, None)
        return Reply(task, payload, round=envelope.round), None

    def _book(self, task: Task, fate: Fate | None, size: int) -> None:
        """What arrived has cost its client. If it is good (None), the round that gets it decides whether it is late."""
        if not task.test_evaluation:
            self.ledger.received(fate, size, 0 if fate == "failed" else task.macs)

    def _give_up(self, order: int) -> None:
        """The deadline has passed for this task."""
        envelope = self._working.pop(order, None) or self._waiting.pop(order)
        self._transport.abandon(order)
        error = f"no reply within {self.deadline:g} s"
        self._shelve(envelope, Outcome(order, error=error))

    def _deliver(self, order: int) -> Reply:
        self._last_send.discard(order)
        reply = self._done.pop(order)
        if reply.ok and not reply.task.test_evaluation:
            self.ledger.counted("used" if reply.round == self.round else "late")
        return reply
