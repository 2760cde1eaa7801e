"""The dispatcher: everything between a method's calls and a transport that must be the same on every engine.

A task is waiting (sent, not started), then working (the transport has it), then done (its reply has arrived and can
be delivered). The dispatcher decides the order of replies, the window, how many tasks a client is given, what each
client holds, its memory, reply checks and the ledger. Two things vary:

- the `Clock` (`clock.py`) decides when the outcome of finished work arrives, and how long a wait lasts;
- the `Journal`, if there is one, has every outcome on the disk before a method sees it, and replays it after a kill.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from atoll.core import checks, wire
from atoll.core.ledger import Fate, Ledger
from atoll.core.messages import REJECTED, REPORT, Payload, Reply, Task, charged, one_line
from atoll.federation.client_cache import ClientCache
from atoll.federation.clock import Clock
from atoll.federation.journal import Journal
from atoll.federation.privacy import PrivacyGuard
from atoll.federation.transport import (
    Envelope,
    Outcome,
    Transport,
    envelope_from_plain,
    plain_envelope,
    plain_reply,
    reply_from_plain,
)

FORGETFUL = "atoll.clients."  # jobs of these modules write no memory, unless their task says what it `remembers`
UNEXPECTED_REPLIES = 10  # that a round reports: endless junk must not fill the log


class Dispatcher:
    """Tasks from `enter` to `deliver`. Used by `Federation` and by its clock, by nothing else."""

    def __init__(
        self,
        transport: Transport,
        names: Iterable[str],
        ledger: Ledger,
        clock: Clock,
        journal: Journal | None,
        guard: PrivacyGuard | None = None,
    ) -> None:
        self.transport = transport
        self.ledger = ledger
        self.round = 0
        self.cache = ClientCache()
        self.last_send: dict[int, str] = {}  # orders and clients
        self.waiting: dict[int, Envelope] = {}  # sent, not started
        self.working: dict[int, Envelope] = {}  # started, no outcome yet
        self.done: dict[int, Reply] = {}  # arrived, not delivered
        self.unexpected: list[str] = []  # replies of this round that answer no task in progress
        self._clock, self._journal, self._guard = clock, journal, guard
        self._known = frozenset(names)
        self._memory: dict[str, Payload] = {}
        self._numbers: dict[str, int] = {}  # of each client's next task in this round, for its random stream
        self._orders = 0
        self._calls = 0  # of send, receive and map: the place of an outcome in the journal
        self._replaying: set[int] = set()  # working orders that the journal answers, at a later call

    # -- calls of the method --------------------------------------------------------------------------------------

    def begin(self, number: int, tried: int) -> None:
        self.round = number
        self.unexpected.clear()
        self._numbers.clear()
        self.ledger.open_round()
        self._clock.begin(self, tried)

    def open_call(self) -> None:
        self._calls += 1

    def close_call(self) -> None:
        """The method is about to see what has arrived in this call; nothing is added to it after a kill."""
        if self._journal is not None and not self.replayed:
            self._journal.end(self._calls)

    @property
    def orders(self) -> int:
        """How many tasks were ever sent: the order of the next one."""
        return self._orders

    @property
    def replayed(self) -> bool:
        """Whether the method saw the end of this call before a kill: only what the journal has may arrive."""
        return self._journal is not None and self._journal.ended(self._calls)

    # -- the way of a task ----------------------------------------------------------------------------------------

    def enter(self, tasks: Sequence[Task]) -> list[int]:
        """The orders of these tasks, which are the last send from now on."""
        self.last_send = {}
        orders = [self._enter(task) for task in tasks]
        if self._guard is not None:
            self._guard.account.records.flush()  # before anything is started, so before anything leaves
        return orders

    def _enter(self, task: Task) -> int:
        """Register a task: its order, its stream's number, its bytes, and what its client holds from now on."""
        order, self._orders = self._orders, self._orders + 1
        self.last_send[order] = task.client
        number = self._numbers.get(task.client, 0)
        self._numbers[task.client] = number + 1
        sizes = wire.tensor_sizes(task.payload)
        if task.client not in self._known:
            self.done[order] = Reply(task, error=f"there is no client {task.client!r}", round=self.round, asked=False)
            return order
        if self.ledger.is_set_aside(task.client):
            error = "set aside after too many rejected replies"
            self.done[order] = Reply(task, error=error, round=self.round, asked=False)
            return order
        if self._guard is not None:
            task, refusal = self._guard.admit(task, self.round, number)
            if refusal is not None:
                self.done[order] = Reply(task, error=refusal, round=self.round, asked=False)
                return order
        size = 0 if task.test_evaluation else wire.size(charged(task.payload), self.cache.of(task.client))
        if not task.test_evaluation:
            self.ledger.sent(task.client, size)
            self.cache.take(task.client, sizes)
        envelope = self._clock.send(self, Envelope(task, self.round, number, order, {}, frozenset(sizes), size))
        if envelope is not None:
            self.waiting[order] = envelope
        return order

    def feed(self, streaming: bool = False) -> None:
        """Start waiting envelopes in order, as far as the transport's window allows and their clients may have more.

        When streaming, replies that wait for delivery take up the window too, so that they cannot accumulate; but one
        task may always start, because the reply that is waited for may not be among them.
        """
        if self._journal is not None and self._journal.known:
            self._replay(self._journal)
        started = len(self.working) - len(self._replaying)
        free = self.transport.window * self.transport.queue - started - (len(self.done) if streaming else 0)
        free = max(free, 0 if started else 1)
        room = self._room(streaming)
        given: dict[str, list[Task]] = {}
        for envelope in self.working.values():
            given.setdefault(envelope.task.client, []).append(envelope.task)
        chosen: list[Envelope] = []
        passed_over: set[str] = set()  # a client's tasks never overtake each other
        for envelope in self.waiting.values():
            task = envelope.task
            if len(chosen) >= free and room <= 0:
                break
            own = given.setdefault(task.client, [])
            if task.client in passed_over or not self._may_have(task, own):
                passed_over.add(task.client)
                continue
            room -= _reply_bytes(task) if self.transport.replies else 0
            if len(chosen) >= free and room < 0:
                break
            own.append(task)
            chosen.append(envelope)
        for envelope in chosen:
            del self.waiting[envelope.order]
            complete = replace(envelope, memory=self._memory.get(envelope.task.client, {}))
            self.working[envelope.order] = complete
            self.transport.start(complete)

    def _room(self, streaming: bool) -> int:
        """Bytes of replies that may come besides those of the tasks in progress."""
        if not self.transport.replies:
            return 0
        started = [envelope.task for order, envelope in self.working.items() if order not in self._replaying]
        waiting = [reply.task for reply in self.done.values()] if streaming else []
        return self.transport.replies - sum(_reply_bytes(task) for task in (*started, *waiting))

    def _may_have(self, task: Task, given: Sequence[Task]) -> bool:
        """Whether a client that does these tasks may be given another. A task carries its client's memory, so one that
        may change it, and one that starts from it, is given alone."""
        if not given:
            return True
        if len(given) >= self.transport.queue or task.client in self._memory:
            return False
        return all(one.remembers is None and one.job.startswith(FORGETFUL) for one in (task, *given))

    def collect(self, timeout: float) -> None:
        """Take the outcomes that have arrived; wait up to `timeout` seconds for one."""
        if not self.working:
            return
        outcomes = self.transport.poll(None if timeout == math.inf else timeout)
        expected = [(self.working[found.order], found) for found in outcomes if found.order in self.working]
        if self._journal is not None and expected:
            self._journal.write(self._calls, expected)
        for outcome in outcomes:
            self._finish(outcome)

    def finish_work(self) -> None:
        """Return when no task is waiting or working."""
        while self.waiting or self.working:
            self.feed()
            self.collect(math.inf)

    def give_up(self, order: int, error: str) -> None:
        """The task has failed, because no reply came in time."""
        if order in self.waiting:
            self.working[order] = self.waiting.pop(order)
        self._replaying.discard(order)
        self.transport.abandon(order)
        outcome = Outcome(order, error=error)
        if self._journal is not None:
            self._journal.write(self._calls, [(self.working[order], outcome)])
        self._finish(outcome)

    def check(self, envelope: Envelope, outcome: Outcome) -> tuple[Reply, Fate | None]:
        """The reply that an outcome makes, and its fate if it is a bad one. A good one renews its client's memory."""
        task = envelope.task
        if outcome.error is not None:
            error = one_line(outcome.error)
            if not outcome.rejected and error.startswith(REJECTED):  # only the server rejects
                error = f"client: {error}"
            return Reply(task, error=error, round=envelope.round), "rejected" if outcome.rejected else "failed"
        payload = outcome.payload or {}
        reason = checks.inspect(payload, task.returns)
        if reason is not None:
            return Reply(task, error=one_line(f"{REJECTED}{reason}"), round=envelope.round), "rejected"
        if outcome.memory:
            self._memory[task.client] = outcome.memory
        else:
            self._memory.pop(task.client, None)
        return Reply(task, payload, round=envelope.round), None

    def arrive(self, order: int, reply: Reply, fate: Fate | None, size: int) -> None:
        """Count a reply and make it ready for delivery. If it is good, the round that gets it decides whether it is
        late."""
        if not reply.task.test_evaluation:
            macs = 0 if fate == "failed" else reply.task.macs
            self.ledger.received(fate, size, macs, reply.task.client, reply.error or "")
        self.done[order] = reply

    def deliver(self, order: int) -> Reply:
        self.last_send.pop(order, None)
        reply = self.done.pop(order)
        if reply.ok and not reply.task.test_evaluation:
            self.ledger.counted("used" if reply.round == self.round else "late", reply.task.client)
        return reply

    def _finish(self, outcome: Outcome) -> None:
        """The server's own record decides: what answers no task in progress is counted, reported, not delivered."""
        envelope = self.working.pop(outcome.order, None)
        if envelope is not None:
            if outcome.payload and REPORT in outcome.payload:
                outcome = replace(outcome, size=wire.size(charged(outcome.payload), digests=False))
            self._clock.finish(self, envelope, outcome)
            return
        self.ledger.received("rejected", outcome.size)
        sent = 0 <= outcome.order < self._orders
        reason = "was answered or given up already" if sent else "was never sent"
        if len(self.unexpected) < UNEXPECTED_REPLIES:
            self.unexpected.append(f"a reply to task {outcome.order}, which {reason}")

    def _replay(self, journal: Journal) -> None:
        """Tasks whose outcomes the journal has are not started; the outcomes of this call arrive again."""
        again = [order for order in self.waiting if order in journal.known]
        if not all(journal.fits(self.waiting[order]) for order in again):
            journal.rewind(self._calls - 1)
            unanswered = {order: self.working.pop(order) for order in self._replaying}
            self.waiting = dict(sorted({**self.waiting, **unanswered}.items()))
            self._replaying.clear()
            return
        for order in again:
            self.working[order] = self.waiting.pop(order)
            self._replaying.add(order)
        for outcome in journal.take(self._calls):
            self._replaying.discard(outcome.order)
            self._finish(outcome)

    # -- saving ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Payload:
        in_flight = {**self.waiting, **self.working}
        return {
            "orders": self._orders,
            "calls": self._calls,
            "memory": dict(self._memory),
            "holds": self.cache.to_plain(),
            "in_flight": [plain_envelope(in_flight[order]) for order in sorted(in_flight)],
            "done": [plain_reply(order, self.done[order]) for order in sorted(self.done)],
            "clock": self._clock.snapshot(),
        }

    def restore(self, snapshot: Payload) -> None:
        self._orders, self._calls = snapshot["orders"], snapshot["calls"]
        self._memory = dict(snapshot["memory"])
        self.cache = ClientCache.from_plain(snapshot["holds"])
        for row in snapshot["in_flight"]:
            envelope = envelope_from_plain(row)
            self.waiting[envelope.order] = envelope
        for row in snapshot["done"]:
            self.done[row["order"]] = reply_from_plain(row)
        self._clock.restore(snapshot["clock"])
        if self._journal is not None:
            self._journal.skip(self._calls)

    def saved(self, snapshot: Payload) -> None:
        if self._journal is not None and snapshot["calls"] < self._calls:  # what came after will be tried again
            self._journal.rewind(snapshot["calls"])
        elif self._journal is not None:
            self._journal.saved(snapshot["calls"])
        since = min((row["order"] for row in snapshot["in_flight"]), default=snapshot["orders"])
        self.transport.saved(snapshot["memory"], since)

    def close(self) -> None:
        self.transport.close()
        if self._journal is not None:
            self._journal.close()


def _reply_bytes(task: Task) -> int:
    """The most that a reply to this task takes in memory, nearly."""
    return checks.limits(task.returns).arrays
