"""When outcomes arrive, and how long a wait lasts: in real time here, in virtual time in `atoll.simulation`."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from atoll.core.messages import ClientInfo, Payload, Reply, Task
from atoll.federation.exchange import Enough, ExchangeRules
from atoll.federation.transport import Envelope, Outcome

if TYPE_CHECKING:
    from atoll.federation.dispatcher import Dispatcher


class Clock(Protocol):
    """Decides when outcomes arrive. Serves one dispatcher, which calls it and passes itself."""

    holds_back: bool  # replies may come late although their exchange waits for all
    tests_take_no_time: bool  # test evaluations are always answered at once, also by busy clients

    def begin(self, dispatcher: Dispatcher, tried: int) -> None:
        """A round begins, which has failed `tried` times before the run paused."""

    def clients(self, clients: Sequence[ClientInfo]) -> list[ClientInfo]:
        """The clients as they are known at this moment."""
        ...

    def send(self, dispatcher: Dispatcher, envelope: Envelope) -> Envelope | None:
        """The envelope as it is sent now; None if its task will get no answer, which is then the clock's to report."""

    def finish(self, dispatcher: Dispatcher, envelope: Envelope, outcome: Outcome) -> None:
        """The client's work is done: pass it to `dispatcher.arrive`, now or later."""

    def refuse_impossible(self, dispatcher: Dispatcher, rules: ExchangeRules, takes_late: bool) -> None:
        """Raise a `ConfigError` if it is known that too few of the waiting tasks can be answered by these rules, as
        replies to their exchange or, if it `takes_late` ones, also to later ones."""

    def in_flight(self, dispatcher: Dispatcher) -> dict[int, Task]:
        """The tasks whose replies have not arrived, by their orders. The clock may know of some that are done."""
        ...

    def wait(self, dispatcher: Dispatcher, enough: Enough, limit: float) -> None:
        """Return when enough replies have arrived, or after `limit` seconds."""

    def stream(self, dispatcher: Dispatcher, orders: Sequence[int], limit: float) -> Iterator[int]:
        """Each of these orders in turn, as soon as it is done; after `limit` seconds the rest are failures."""
        ...

    def at_work(self, dispatcher: Dispatcher) -> dict[int, Task]:
        """The tasks that their clients have not finished, by their orders."""
        ...

    def limit(self, dispatcher: Dispatcher, orders: Collection[int], seconds: float) -> None:
        """Give these tasks up if they are not answered within this many seconds, also when nothing waits for them any
        more. Tasks that have just been entered are not started yet."""

    def forget(self, reply: Reply) -> None:
        """The method has discarded a late reply as stale."""

    def events(self) -> Payload:
        """What happened in this round, for its event."""
        ...

    def snapshot(self) -> Payload: ...

    def restore(self, snapshot: Payload) -> None: ...


class RealTime:
    """An outcome arrives when the transport reports it. Seconds are those of the machine's clock."""

    holds_back = False
    tests_take_no_time = False

    def __init__(self) -> None:
        self._limits: dict[int, float] = {}  # tasks that are given up: after how many seconds
        self._ends: dict[int, float] = {}  # when, by the machine's clock

    def begin(self, dispatcher: Dispatcher, tried: int) -> None:
        """A round that is tried again is the same round."""

    def clients(self, clients: Sequence[ClientInfo]) -> list[ClientInfo]:
        return list(clients)

    def send(self, dispatcher: Dispatcher, envelope: Envelope) -> Envelope | None:
        return envelope

    def finish(self, dispatcher: Dispatcher, envelope: Envelope, outcome: Outcome) -> None:
        reply, fate = dispatcher.check(envelope, outcome)
        dispatcher.arrive(envelope.order, reply, fate, outcome.size)

    def refuse_impossible(self, dispatcher: Dispatcher, rules: ExchangeRules, takes_late: bool) -> None:
        """How long clients take is not known before they have answered."""

    def in_flight(self, dispatcher: Dispatcher) -> dict[int, Task]:
        return {order: envelope.task for order, envelope in (*dispatcher.waiting.items(), *dispatcher.working.items())}

    def wait(self, dispatcher: Dispatcher, enough: Enough, limit: float) -> None:
        if dispatcher.replayed:
            dispatcher.feed()
            return
        dispatcher.feed()
        self._expire(dispatcher)
        end = time.monotonic() + limit
        while not enough.met(dispatcher.done, (), {*dispatcher.waiting, *dispatcher.working}):
            dispatcher.feed()
            left = end - time.monotonic()
            if left <= 0:
                break
            dispatcher.collect(min(left, self._expire(dispatcher)))
        dispatcher.feed()
        dispatcher.collect(0)

    def _expire(self, dispatcher: Dispatcher) -> float:
        """Give up tasks whose time is over; the seconds until that of another one is. A task's time begins with the
        first wait after it was sent: an engine may have to start its processes first."""
        if not self._limits:
            return math.inf
        now = time.monotonic()
        self._ends = {order: self._ends.get(order, now + own) for order, own in self._limits.items()}
        if min(self._ends.values()) <= now:
            dispatcher.collect(0)
        for order in sorted(order for order, end in self._ends.items() if end <= now):
            if order in dispatcher.waiting or order in dispatcher.working:
                dispatcher.give_up(order, f"no reply within {self._limits[order]:g} s")
        in_progress = {*dispatcher.waiting, *dispatcher.working}
        self._limits = {order: own for order, own in self._limits.items() if order in in_progress}
        return min((self._ends[order] - now for order in self._limits), default=math.inf)

    def stream(self, dispatcher: Dispatcher, orders: Sequence[int], limit: float) -> Iterator[int]:
        dispatcher.feed(streaming=True)  # before the clock starts: an engine may have to start its processes first
        self._expire(dispatcher)
        end = time.monotonic() + limit
        for order in orders:
            while order not in dispatcher.done:
                left = end - time.monotonic()
                if left <= 0:
                    dispatcher.collect(0)
                    if order not in dispatcher.done:
                        dispatcher.give_up(order, f"no reply within {limit:g} s")
                    break
                dispatcher.feed(streaming=True)
                dispatcher.collect(min(left, self._expire(dispatcher)))
            yield order

    def at_work(self, dispatcher: Dispatcher) -> dict[int, Task]:
        return self.in_flight(dispatcher)

    def limit(self, dispatcher: Dispatcher, orders: Collection[int], seconds: float) -> None:
        self._limits |= dict.fromkeys(orders, seconds)

    def forget(self, reply: Reply) -> None:
        pass

    def events(self) -> Payload:
        return {}

    def snapshot(self) -> Payload:
        """Limits begin again: how long a run was interrupted is nothing that its clients are to blame for."""
        return {"limits": [list(item) for item in sorted(self._limits.items())]}

    def restore(self, snapshot: Payload) -> None:
        self._limits = dict(snapshot["limits"])
