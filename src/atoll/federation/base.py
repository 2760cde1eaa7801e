"""The Federation: how a method reaches clients, whatever machine they are on.

The contract (`atoll.testing.EngineContract` tests it):

1. `receive(at_least=k)` waits for k replies to the LAST send's tasks; late ones that arrive meanwhile come along.
   Order: older rounds first, then task order, never order of arrival.
2. A failed, silent or rejected client is a `Reply` with `error`; nothing raises, nothing hangs. A quorum that can no
   longer be met returns what there is.
3. A client does one task at a time; its memory persists between tasks, and a failed task leaves it unchanged.
4. A client's random stream is named by (seed, round, client, number of the task within its round).
5. `map` streams: at most a few replies that were not delivered yet are in memory.

An engine adds a `Transport` and the list of its clients. `dispatcher.py` does the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from atoll.core.ledger import Ledger
from atoll.core.messages import ClientInfo, Payload, Reply, Task
from atoll.federation.dispatcher import Clock, Dispatcher, RealTime
from atoll.federation.journal import Journal
from atoll.federation.replies import Replies
from atoll.federation.transport import Transport


class Federation:
    """The handle a method holds. See the module's contract."""

    def __init__(
        self,
        transport: Transport,
        clients: Sequence[ClientInfo],
        benchmark: Sequence[ClientInfo] = (),
        deadline: float | None = None,
        clock: Clock | None = None,
        journal: Journal | None = None,
        held_out: Sequence[ClientInfo] = (),
    ) -> None:
        """`deadline`: seconds that each wait for replies lasts at most, by the clock. Without a `clock`: real time."""
        self.ledger = Ledger()
        self.deadline = deadline
        self._clock = RealTime() if clock is None else clock
        self._clients = self._clock.clients(clients)
        self._benchmark, self._held_out = list(benchmark), list(held_out)
        names = [info.name for info in (*clients, *benchmark, *held_out)]
        self._dispatcher = Dispatcher(transport, names, self.ledger, self._clock, journal)

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

    def test_holders(self) -> list[ClientInfo]:
        """Who holds test data for the report: the benchmark's official test set, else the clients' own test parts."""
        return self._benchmark or [info for info in self._clients if info.sizes["test"] > 0]

    def held_out(self) -> list[ClientInfo]:
        """Clients that no method learns of: their rows only test the result."""
        return self._held_out

    @property
    def busy(self) -> frozenset[str]:
        """Clients that have not finished all their tasks: a new task for one of them would have to wait."""
        return self._clock.busy(self._dispatcher)

    # -- calls of the method --------------------------------------------------------------------------------------

    def send(self, tasks: Sequence[Task]) -> None:
        """Hand tasks over. Their replies come from `receive`."""
        self._dispatcher.open_call()
        self._dispatcher.enter(tasks)
        self._dispatcher.feed()

    def receive(self, at_least: int | None = None, deadline: float | None = None) -> list[Reply]:
        """Replies to the last send, at least `at_least` (None: all), and late ones to earlier sends.

        After a send of nothing, because all clients are busy, late replies are counted instead.
        """
        self._dispatcher.open_call()
        self._clock.wait(self._dispatcher, at_least, _limit(self.deadline if deadline is None else deadline))
        replies = [self._dispatcher.deliver(order) for order in sorted(self._dispatcher.done)]
        self._dispatcher.close_call()
        return replies

    def map(self, tasks: Sequence[Task]) -> Iterator[Reply]:
        """Send tasks and stream all their replies, in task order, until the federation's deadline."""
        self._dispatcher.open_call()
        orders = self._dispatcher.enter(tasks)
        for order in self._clock.stream(self._dispatcher, orders, _limit(self.deadline)):
            yield self._dispatcher.deliver(order)

    def collect(self, tasks: Sequence[Task], minimum: int = 1, what: str = "a usable reply") -> Replies:
        """Send tasks and stream the good replies, in task order; see `Replies` for what becomes of the bad ones."""
        return Replies(self.map(tasks), len({task.client for task in tasks}), minimum, what)

    def forget(self, reply: Reply) -> None:
        """The method has discarded a late reply as stale."""
        self.ledger.changed_its_mind(reply.task.client, "late", "stale")
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
        self._dispatcher.begin(number, tried)
        self._clients = self._clock.clients(self._clients)

    def engine_events(self) -> Payload:
        """What the engine adds to the round's event, beyond the ledger."""
        unexpected = self._dispatcher.unexpected
        return {**({"unexpected_replies": list(unexpected)} if unexpected else {}), **self._clock.events()}

    def snapshot(self) -> Payload:
        """Clients' memory, what each holds, and what is in flight. Only between rounds."""
        return self._dispatcher.snapshot()

    def restore(self, snapshot: Payload) -> None:
        """Continue from a snapshot: tasks in flight are started again and give the same outcomes."""
        self._dispatcher.restore(snapshot)

    def saved(self, snapshot: Payload) -> None:
        """A checkpoint with this snapshot is on the disk."""
        self._dispatcher.saved(snapshot)

    def close(self) -> None:
        self._dispatcher.close()

    def __enter__(self) -> Federation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _limit(deadline: float | None) -> float:
    return math.inf if deadline is None else deadline
