"""Replies that nobody asked for: the server's own record decides what a reply answers, and takes one for each task."""

from __future__ import annotations

import numpy as np

from atoll.core.checks import Count
from atoll.core.messages import Payload, Task
from atoll.federation.transport import Envelope, Outcome, Transport
from atoll.rng import stream
from atoll.testing import ScriptedFederation

NAMES = [f"c{number}" for number in range(10)]


class Straying(Transport):
    """Follows every reply with others: the same again, another one to the same task, earlier ones of this client and of
    others, and one to a task that was never sent."""

    def __init__(self, inner: Transport) -> None:
        self.inner, self.window = inner, inner.window
        self.strays = 0
        self._earlier: list[Outcome] = []
        self._rng = stream(1, "strays")

    def start(self, envelope: Envelope) -> None:
        self.inner.start(envelope)

    def poll(self, timeout: float | None) -> list[Outcome]:
        found = []
        for outcome in self.inner.poll(timeout):
            self._earlier.append(outcome)
            again = self._earlier[int(self._rng.integers(len(self._earlier)))]
            strange = int(self._rng.choice([-1, 10**6, 2**62]))
            more = [outcome, Outcome(outcome.order, {"value": 9}, {"stolen": 1}, 7), again]
            more += [Outcome(again.order, {"value": 8}, {}, 7), Outcome(strange, {"value": 7}, {}, 7)]
            self.strays += len(more)
            found += [outcome, *more]
        return found

    def abandon(self, order: int) -> None:
        self.inner.abandon(order)


def test_none_of_five_thousand_duplicates_replays_and_misdirected_replies_is_accepted() -> None:
    """A hundred rounds of ten clients, five for each task."""

    def answer(task: Task) -> Payload:
        return {"value": task.payload["value"]}

    federation = ScriptedFederation(NAMES, answer)
    federation.transport = straying = Straying(federation.transport)
    rng = np.random.default_rng(1)
    for number in range(1, 101):
        federation.begin(number)
        wanted = rng.integers(5, size=len(NAMES)).tolist()
        asked = zip(NAMES, wanted, strict=True)
        tasks = [Task(name, name, "job", {"value": value}, returns={"value": Count(9)}) for name, value in asked]
        assert [reply.payload["value"] for reply in federation.collect(tasks)] == wanted
        assert len(federation.engine_events()["unexpected_replies"]) <= 10
    total = federation.ledger.total().replies
    assert total["used"] == 1000 and straying.strays == total["rejected"] == 5000
    assert federation.snapshot()["memory"] == {}
