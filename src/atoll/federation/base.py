"""The Federation: how a method reaches clients, whatever machine they are on.

The contract (`atoll.testing.EngineContract` tests it):

1. `receive(at_least=k)` waits for k replies to the LAST send's tasks; late ones that arrive meanwhile come along.
   `collect` waits as the engine's rules say (`exchange.py`). Order: older rounds first, then task order, never order of
   arrival.
2. A failed, silent or rejected client is a `Reply` with `error`; nothing raises, nothing hangs. A quorum that can no
   longer be met returns what there is.
3. A client does one task at a time; its memory persists between tasks, and a failed task leaves it unchanged.
4. A client's random stream is named by (seed, round, client, number of the task within its round).
5. `map` streams: at most a few replies that were not delivered yet are in memory.

An engine adds a `Transport` and the list of its clients. `dispatcher.py` does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Self

from atoll.algorithms.aggregation import Average, GradientMean, Mean, PartialMean
from atoll.algorithms.robust import RobustGradient, RobustMean
from atoll.core.ledger import Fate, Ledger
from atoll.core.messages import ClientInfo, Late, Payload, Reply, Task, Tensors
from atoll.federation.clock import Clock, RealTime
from atoll.federation.dispatcher import Dispatcher
from atoll.federation.exchange import Enough, ExchangeRules
from atoll.federation.journal import Journal
from atoll.federation.privacy import PrivacyGuard
from atoll.federation.replies import Replies
from atoll.federation.transport import Transport
from atoll.federation.trust import (
    NormRule,
    RobustSettings,
    Strikes,
    Unchanged,
    capped_shares,
    draw_checkers,
    returns_update,
)
from atoll.rng import Generator


class Federation:
    """The handle a method holds. See the module's contract."""

    def __init__(
        self,
        transport: Transport,
        clients: Sequence[ClientInfo],
        benchmark: Sequence[ClientInfo] = (),
        rules: ExchangeRules | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
        held_out: Sequence[ClientInfo] = (),
        robust: RobustSettings | None = None,
        guard: PrivacyGuard | None = None,
    ) -> None:
        """Without `rules` every exchange waits for all replies. Without a `clock`: real time."""
        self.ledger = Ledger()
        self.robust = robust or RobustSettings()
        self.unchanged = Unchanged()
        self._set_aside: dict[str, str] = {}  # not reported yet: client -> why
        self._sizes: dict[str, list[float]] = {}  # job -> sizes of its last updates, see `NormRule.sizes`
        self._updates: dict[str, float] = {}  # in this round: client -> the root mean square of its largest update
        self.rules = rules or ExchangeRules()
        self._left_out: dict[str, int] = {}  # rounds in a row in which no reply of a client was used
        self._concerned: set[str] = set()  # in this round: clients whose replies could have been used
        self._of_use: set[int] = set()  # tasks that are not over, whose late replies a later exchange may take
        self._phase = 0  # the first task of this phase: what is older is not waited for
        self._clock = RealTime() if clock is None else clock
        self._clients = self._clock.clients(clients)
        self._benchmark, self._held_out = list(benchmark), list(held_out)
        names = [info.name for info in (*clients, *benchmark, *held_out)]
        self.guard = guard  # under `[privacy]`
        self._dispatcher = Dispatcher(transport, names, self.ledger, self._clock, journal, guard)

    @property
    def round(self) -> int:
        return self._dispatcher.round

    @property
    def transport(self) -> Transport:
        """What carries the tasks. It may be replaced, for instance by one that wraps it, while none is in progress."""
        return self._dispatcher.transport

    @transport.setter
    def transport(self, transport: Transport) -> None:
        self._dispatcher.transport = transport

    # -- clients --------------------------------------------------------------------------------------------------

    def clients(self) -> list[ClientInfo]:
        """All that the server may know of each client."""
        return self._clients

    def weight(self, client: str, rows: float) -> float:
        """What a client with this many rows counts for in an average, by `robust.client_weights`."""
        rule = self.robust.client_weights
        if rule == "equal":
            return 1.0
        return rows * self._shares[client] if rule == "capped" and client in self._shares else rows

    @cached_property
    def _shares(self) -> dict[str, float]:
        """Of the clients as they joined: what they report later changes nothing."""
        return capped_shares(self._clients)

    def mean(self, start: Tensors | None, name: str = "model") -> Mean | RobustMean:
        """What averages whole models that started from `start` (None: changes), by `robust.models`. `name` is the
        model's in the event of the round, if it has too few updates."""
        averaging = self.robust.averaging
        return Mean() if averaging.plain else RobustMean(averaging, start, too_few=self.unchanged.of_model(name))

    def partial_mean(self, master: Tensors, average: Average) -> PartialMean | RobustMean:
        """The same for models that are parts of a master."""
        averaging = self.robust.averaging
        if averaging.plain:
            return PartialMean(master, average)
        return RobustMean(averaging, master, partial=True, too_few=self.unchanged.of_tensors)

    def gradient_mean(self) -> GradientMean | RobustGradient:
        """The same for gradients of sub-models."""
        averaging = self.robust.averaging
        return GradientMean() if averaging.plain else RobustGradient(averaging, self.unchanged.of_tensors)

    @property
    def median_fitness(self) -> bool:
        """Whether the error that a search minimises is the median of the clients' own, by `robust.fitness`."""
        return self.robust.fitness == "median"

    def draw_checkers(self, rng: Generator) -> list[str]:
        """The clients that measure nothing in the search and re-check its final networks; none without
        `robust.confirm`."""
        return draw_checkers(self.clients(), rng) if self.robust.confirm else []

    def test_holders(self) -> list[ClientInfo]:
        """Who holds test data for the report: the benchmark's official test set, else the clients' own test parts.

        Under `[privacy]` clients count test rows once, of the networks that are handed over, and are not among these.
        """
        if self.guard is not None:
            return self._benchmark
        return self._benchmark or [info for info in self._clients if info.sizes["test"] > 0]

    def held_out(self) -> list[ClientInfo]:
        """Clients that no method learns of: their rows only test the result."""
        return self._held_out

    @property
    def busy(self) -> frozenset[str]:
        """Clients that have not finished all their tasks: a new task for one of them would have to wait."""
        return frozenset(task.client for task in self._clock.at_work(self._dispatcher).values())

    def available(self) -> list[ClientInfo]:
        """The clients that `collect` would ask now. If all are busy with what is of no use, it waits for the first that
        is free."""
        takes_late = self.rules.late != "drop"
        if not (takes_late and self._of_use & self._clock.in_flight(self._dispatcher).keys()):
            self._let_one_finish({info.name for info in self._clients})
        out = self._not_asked(takes_late)
        return [info for info in self._clients if info.name not in out]

    def new_phase(self) -> None:
        """From here on the method has no use for what is in flight: late replies to it are dropped, and no exchange
        waits for it, not even for the sake of fairness."""
        self._phase, self._of_use = self._dispatcher.orders, set()
        self._limit(self._clock.in_flight(self._dispatcher), self.rules.limit)

    # -- calls of the method --------------------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand tasks over. Their replies come from `receive`."""
        self._dispatcher.open_call()
        self._enter(tasks, self.rules.late != "drop")
        self._dispatcher.feed()

    def _send(self, tasks: Sequence[Task], takes_late: bool = False) -> None:
        """For an exchange. What it cannot take late is given up at the deadline."""
        self._dispatcher.open_call()
        orders = self._enter(tasks, takes_late)
        if not takes_late:
            self._limit(orders, self.rules.limit)
        self._dispatcher.feed()

    def _limit(self, orders: Collection[int], seconds: float) -> None:
        if seconds < math.inf:
            self._clock.limit(self._dispatcher, orders, seconds)

    def _enter(self, tasks: Sequence[Task], takes_late: bool = False) -> list[int]:
        orders = self._dispatcher.enter(tasks)
        if self.round <= 1:  # later ones follow hours of work, and links change
            self._clock.refuse_impossible(self._dispatcher, self.rules, takes_late)
        return orders

    def receive(self, at_least: int | None = None, deadline: float | None = None) -> list[Reply]:
        """Replies to the last send, at least `at_least` (None: all), and late ones to earlier sends.

        After a send of nothing, because all clients are busy, late replies are counted instead.
        """
        self._dispatcher.open_call()
        last = self._dispatcher.last_send
        counted = last or self._clock.in_flight(self._dispatcher)
        needed = len(last) if at_least is None else at_least
        return list(self._received(Enough.each(counted, needed), deadline).values())

    def _received(self, enough: Enough, deadline: float | None = None, left: Collection[int] = ()) -> dict[int, Reply]:
        """Wait, and take what has arrived, by the orders of the tasks; replies to the tasks `left` wait for another
        call."""
        limit = self.rules.limit if deadline is None else deadline
        self._clock.wait(self._dispatcher, enough, limit)
        done = sorted(order for order in self._dispatcher.done if order not in left)
        replies = {order: self._dispatcher.deliver(order) for order in done}
        self._of_use -= replies.keys()
        self._dispatcher.close_call()
        return replies

    def map(self, tasks: Sequence[Task]) -> Iterator[Reply]:
        """Send tasks and stream all their replies, in task order, until the deadline."""
        self._dispatcher.open_call()
        orders = self._enter(tasks)
        for order in self._clock.stream(self._dispatcher, orders, self.rules.limit_of(tasks)):
            yield self._dispatcher.deliver(order)

    def collect(
        self,
        tasks: Sequence[Task],
        minimum: int = 1,
        what: str = "a usable reply",
        *,
        takes_late: bool = False,
        participating: int | None = None,
    ) -> Replies:
        """Send tasks and give the good replies, in task order; see `Replies` for what becomes of the bad ones.

        It waits as the engine's rules say. Clients that are busy with an earlier exchange are not asked, unless their
        turn has come (`engine.fair`); the quorum is a share of all clients with tasks, or of `participating` if the
        method has left busy ones out itself. An exchange that `takes_late` also gets, and gets first, late replies to
        earlier ones that do so, unless the rules drop them: their `round` is that of their task.

        Too few good replies, by `minimum` or by the engine's rules, are `TooFewReplies`. With a `minimum` of 0 the
        method must look at `enough` itself.
        """
        clients = len({task.client for task in tasks})
        in_order = self.rules.in_order and (self.rules.final or not self._clock.holds_back)
        tests = self._clock.tests_take_no_time and all(task.test_evaluation for task in tasks)
        if in_order or (tests and tasks):
            replies = self.map(tasks)
        else:
            replies = self._exchange(tasks, takes_late, participating or clients)
        if returns_update(tasks):
            replies = self._within_norm(replies, next(task.job for task in tasks if returns_update([task])))
        asked = None if takes_late else sum(not task.test_evaluation for task in tasks)
        return Replies(self._with_strikes(replies), clients, minimum, what, self.rules.least, asked)

    def _with_strikes(self, replies: Iterator[Reply]) -> Iterator[Reply]:
        """The replies of an exchange, after which clients that were rejected too often are set aside."""
        strikes = Strikes()
        yield from strikes.passed(replies)
        for client, reason in strikes.found.items():
            if self.ledger.strike(client, self.robust.strikes, self.round):
                self._set_aside[client] = f"{self.robust.strikes} strikes; the last one: {reason}"

    def _within_norm(self, replies: Iterator[Reply], job: str) -> Iterator[Reply]:
        """The replies of an exchange, without updates that are out of all proportion."""

        def rejected(reply: Reply) -> None:
            was: Fate = "used" if reply.round == self.round else "late"
            self.ledger.changed_its_mind(reply.task.client, was, "rejected", reply.error or "")

        rule = NormRule(rejected, earlier=self._sizes.get(job, ()))
        yield from rule.passed(replies)
        self._updates |= rule.whole
        self._sizes[job] = rule.sizes

    def largest_updates(self, number: int = 3) -> dict[str, float]:
        """The clients with the largest updates of this round, and their root mean squares."""
        ranked = sorted(self._updates.items(), key=lambda item: (-item[1], item[0]))
        return dict(ranked[:number])

    def _exchange(self, tasks: Sequence[Task], takes_late: bool, participating: int) -> Iterator[Reply]:
        """An exchange that ends with a quorum. Not streamed: who is part of it is known at its end only."""
        takes_late = takes_late and self.rules.late != "drop"
        if not takes_late:
            self._let_one_finish({task.client for task in tasks})
        out, free = self._not_asked(takes_late), self._clock.tests_take_no_time
        asked = [task for task in tasks if task.client not in out or (free and task.test_evaluation)]
        if tasks and not asked and not takes_late:
            return  # all are busy, and not one of them was done within the deadline
        self._send(asked, takes_late)
        self._dispatcher.open_call()
        counted, in_flight = dict(self._dispatcher.last_send), self._clock.in_flight(self._dispatcher)
        self._concerned |= {task.client for task in (*tasks, *in_flight.values())}
        taken = set(counted)
        if takes_late:
            counted |= {order: in_flight[order].client for order in self._of_use & in_flight.keys()}
            self._of_use |= taken
            taken = set(self._of_use)
        overdue = self._overdue()
        awaited = [order for order in counted.keys() & in_flight.keys() if counted[order] in overdue]
        enough = Enough(counted, self.rules.needed(participating), awaited)
        replies = self._received(enough, left=() if takes_late else self._of_use)
        if not takes_late:  # networks are compared and averaged over the same clients
            incomplete = {client for order, client in counted.items() if order not in replies}
            taken -= {order for order, reply in replies.items() if reply.ok and reply.task.client in incomplete}
        self._drop(reply for order, reply in replies.items() if order not in taken)
        yield from (reply for order, reply in replies.items() if order in taken)

    def _overdue(self) -> set[str]:
        """The clients that an exchange waits for, because they were left out of enough rounds."""
        return {client for client, rounds in self._left_out.items() if 0 < self.rules.fair <= rounds}

    def _not_asked(self, takes_late: bool) -> set[str]:
        """The clients that are busy. One whose turn it is does a new task after what it is busy with, unless that is of
        use itself or belongs to an earlier phase."""
        out, overdue = set(), self._overdue()
        for order, task in self._clock.at_work(self._dispatcher).items():
            if task.client not in overdue or order < self._phase or (takes_late and order in self._of_use):
                out.add(task.client)
        return out

    def _let_one_finish(self, clients: Collection[str]) -> None:
        """Where all of these clients are busy: wait for the first that is free, at most until the deadline. What it
        answers is too late for the exchange that follows."""
        while clients and set(clients) <= (busy := self.busy):
            self._dispatcher.open_call()
            self._dispatcher.enter([])
            at_work = self._clock.at_work(self._dispatcher)
            done = self._received(Enough.each(at_work, 1), left=self._of_use)
            self._drop(done.values())
            if self.busy == busy:
                return  # no client was done within the deadline

    def _drop(self, replies: Iterable[Reply]) -> None:
        for reply in replies:
            if reply.ok:
                self.forget(reply)

    def wait_for_all(self) -> None:
        """The search is over: from here on every exchange waits for all replies, none is held back for a later round,
        and late ones are dropped. The final measurements give a client several tasks at once; the deadline is for one.
        """
        self.new_phase()
        self.rules = replace(self.rules, quorum=1.0, late="drop", fair=0, final=True)
        if self.guard is not None:
            self.guard.account.closing = True

    @property
    def late(self) -> Late:
        """What becomes of late replies: a method that can use them must know how."""
        return self.rules.late

    def forget(self, reply: Reply) -> None:
        """A late reply is discarded as stale. It may be of this round, but of an earlier exchange."""
        was: Fate = "used" if reply.round == self.round else "late"
        self.ledger.changed_its_mind(reply.task.client, was, "stale")
        self._clock.forget(reply)

    @property
    def undelivered(self) -> int:
        """Replies that have arrived and wait in memory."""
        return len(self._dispatcher.done)

    # -- calls of the run loop ------------------------------------------------------------------------------------

    def begin(self, number: int, tried: int = 0) -> None:
        """A round begins, which has failed `tried` times before the run paused.

        On a virtual network clients then fail by other random draws; in real time it is the same round again.
        """
        self._count_left_out()
        self._updates = {}
        self._dispatcher.begin(number, tried)
        self._clients = self._clock.clients(self._clients)

    def _count_left_out(self) -> None:
        """The last round is over."""
        for client in self._concerned:  # rejected or discarded replies have not been used
            own = self.ledger.this_round.get(client)
            used = own is not None and own.used + own.late > 0
            self._left_out[client] = 0 if used else self._left_out.get(client, 0) + 1
        self._concerned = set()

    def engine_events(self) -> Payload:
        """What the engine adds to the round's event, beyond the ledger."""
        unexpected = self._dispatcher.unexpected
        return {**({"unexpected_replies": list(unexpected)} if unexpected else {}), **self._clock.events()}

    def newly_set_aside(self) -> dict[str, str]:
        """The clients that were set aside since the last call, and why."""
        found, self._set_aside = self._set_aside, {}
        return found | ({} if self.guard is None else self.guard.newly_spent(self.round))

    def snapshot(self) -> Payload:
        """Clients' memory, what each holds, and what is in flight. Only between rounds."""
        self._count_left_out()
        position = None if self.guard is None else self.guard.account.records.position()
        own = {"left_out": dict(self._left_out), "sizes": dict(self._sizes), "privacy": position}
        own |= {"of_use": sorted(self._of_use), "phase": self._phase}
        return self._dispatcher.snapshot() | own

    def restore(self, snapshot: Payload) -> None:
        """Continue from a snapshot: tasks in flight are started again and give the same outcomes."""
        self._left_out, self._sizes = dict(snapshot["left_out"]), dict(snapshot["sizes"])
        self._of_use, self._phase = set(snapshot["of_use"]), snapshot["phase"]
        if self.guard is not None:
            self.guard.account.records.refuse_missing(snapshot["privacy"])
        self._dispatcher.restore(snapshot)

    def saved(self, snapshot: Payload) -> None:
        """A checkpoint with this snapshot is on the disk."""
        self._dispatcher.saved(snapshot)

    def close(self) -> None:
        self._dispatcher.close()
        if self.guard is not None:
            self.guard.account.records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
