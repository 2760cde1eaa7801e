"""How long an exchange with clients waits: settings of the engine, the same for every method.

An exchange sends tasks and waits for replies. With the usual rules it waits for all of them. With a quorum it ends with
the reply that completes it. A quorum is of clients: one with several tasks counts when all of its replies are there. If
some of them are not there at the end, the others are dropped, so that all networks of an exchange meet the same
clients. Clients that are not done go on with their work, are busy until then and are asked no new task. Their late
replies are dropped, or handed to the next exchange if the method can use them.

A client that was left out of `fair` rounds in a row is asked even if it is busy, and its reply is waited for.

An exchange with too few good replies does not count: the round is repeated, and then the run pauses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from atoll.core.messages import Late, Reply, Task

MINIMUM = 0.25  # the share of good replies with which an exchange counts: with five clients two of them


@dataclass(frozen=True)
class ExchangeRules:
    """`quorum` is a share of the participating clients, late arrivals that are used included."""

    quorum: float = 1.0
    minimum: float = MINIMUM  # of an exchange's tasks, the least share of good replies; not more than the quorum
    deadline: float | None = None  # seconds that each wait for replies lasts at most, by the clock; None: no end
    late: Late = "drop"
    rounds_late: int | None = None  # by how many rounds a late reply that is used may be late; None: not known
    fair: int = 0  # a client that was left out of this many rounds in a row is waited for; 0: none is
    final: bool = False  # the search is over: a wait for several tasks of one client lasts as many deadlines

    @property
    def limit(self) -> float:
        return math.inf if self.deadline is None else self.deadline

    def limit_of(self, tasks: Sequence[Task]) -> float:
        """Seconds that a wait for the replies to these tasks lasts at most."""
        most = max(Counter(task.client for task in tasks).values(), default=1)
        return self.limit * most if self.final else self.limit

    @property
    def in_order(self) -> bool:
        """Whether every exchange waits for all of its replies or gives them up, so that none can be late."""
        return self.quorum == 1 and (self.late == "drop" or self.deadline is None)

    def needed(self, participating: int) -> int:
        """Clients that an exchange with this many waits for."""
        return max(1, _share(self.quorum, participating))

    def least(self, asked: int) -> int:
        """Good replies without which an exchange of this many tasks does not count."""
        return _share(min(self.minimum, self.quorum), asked)


def _share(share: float, number: int) -> int:
    return math.ceil(share * number - 1e-9)


@dataclass(frozen=True)
class Enough:
    """When a wait is over: with good replies of `needed` clients and any reply to the tasks `awaited`, or when no more
    can come. `counted` are tasks by their orders, and the client that each is of. A client is there with all of its
    tasks, of which one at least must have succeeded."""

    counted: Mapping[int, str]
    needed: int
    awaited: Collection[int] = ()
    failures_count: bool = False

    @classmethod
    def each(cls, orders: Iterable[int], needed: int) -> Enough:
        """With any `needed` replies to these tasks, whosever they are."""
        return cls({order: str(order) for order in orders}, needed, failures_count=True)

    def met(self, done: Mapping[int, Reply], held: Collection[int], coming: Collection[int]) -> bool:
        """`done` has arrived; `held` has not, but would have if nothing held it back; `coming` is on its way."""
        if not self.counted.keys() & set(coming):
            enough = True
        else:
            good, missing = set(), set()
            for order, client in self.counted.items():
                if order not in done and order not in held:
                    missing.add(client)
                elif order in held or self.failures_count or done[order].ok:
                    good.add(client)
            enough = len(good - missing) >= self.needed
        return enough and not set(self.awaited) & set(coming)
