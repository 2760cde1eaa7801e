"""The virtual network: a clock of its own for the clients of any engine that is not a network itself.

A task that is sent at virtual time t is answered at

    t + download (bytes that travel, over the client's bandwidth from t on)
      + compute  (the task's MACs / the client's speed)
      + upload   (bytes of the reply, over its bandwidth)

or as soon as the client is done with what it was sent before. The engine does the real work, in whatever order
suits it; which reply is there when is decided by virtual time only, so a run gives the same bits on every machine and
for any number of workers. Before the clock moves, all work in flight is really done: only then it is known what comes
first. What differs from real time:

- A task may get no answer at all (`dropout`). Its reply is an error when a deadline is over, when nothing else is
  in progress, or when the next round begins, whichever is first.
- By a `staleness` mix a reply to a task of `send` comes exactly that many rounds late; its client continues meanwhile,
  and a round that waits for it waits only until its work is done.
- A deadline is in virtual seconds. Test evaluations measure for the report, take no time and are always answered.
- Looking without waiting (`receive(at_least=0)`) lets no time pass.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass, replace

from atoll.core.ledger import Fate
from atoll.core.messages import ClientInfo, Payload, Reply, Task
from atoll.federation.dispatcher import Dispatcher
from atoll.federation.exchange import Enough, ExchangeRules
from atoll.federation.transport import (
    Envelope,
    Outcome,
    envelope_from_plain,
    plain_envelope,
    plain_reply,
    reply_from_plain,
)
from atoll.rng import stream
from atoll.simulation.feasible import Trip, refuse_impossible
from atoll.simulation.links import Journey, Link, Links
from atoll.simulation.settings import SimulationSettings
from atoll.simulation.timeline import Timeline

INSTANT = Link()


@dataclass(frozen=True)
class TravellingReply:
    """A reply on its way to the server."""

    order: int
    reply: Reply
    fate: Fate | None  # rejected or failed; None: it is good, and used or late as it arrives
    size: int
    journey: Journey
    due: int  # the first round in which it may arrive

    def arrives(self, round_number: int) -> float:
        """When it arrives, as seen from this round."""
        return math.inf if self.held(round_number) else self.journey.arrived

    def held(self, round_number: int) -> bool:
        """Whether the staleness mix holds it back in this round."""
        return self.due > round_number


class VirtualTime:
    """The `Clock` of a federation on a virtual network."""

    tests_take_no_time = True

    def __init__(self, settings: SimulationSettings, links: Links, seed: int) -> None:
        self.now = 0.0  # virtual seconds since the beginning of the run
        self._links, self._seed = links.of, seed
        self._dropout, self._shares = settings.dropout, settings.shares()
        self.holds_back = self._shares is not None
        self._prompt_rounds = settings.staleness_after
        self._tried = 0  # how often this round failed before a pause: its dropouts are drawn again
        self._free: dict[str, float] = {}  # until when each client is busy
        self._silent: dict[int, Envelope] = {}  # will never be answered
        self._travelling: dict[int, TravellingReply] = {}
        self._limits: dict[int, tuple[float, float]] = {}  # when tasks are given up, and after how many seconds
        self._streamed: set[int] = set()  # tasks of `map`
        self._times: dict[int, float] = {}  # undelivered replies to `map`: when they arrived
        self._timeline = Timeline()

    def begin(self, dispatcher: Dispatcher, tried: int) -> None:
        self._tried = tried
        self._timeline.open(self.now)
        self._give_up_on_the_silent(dispatcher)

    def clients(self, clients: Sequence[ClientInfo]) -> list[ClientInfo]:
        """The clients with their data rates of this moment."""
        links = [(info, self._links.get(info.name, INSTANT)) for info in clients]
        return [replace(info, bandwidth=link.rate(self.now), speed=link.speed) for info, link in links]

    def limit(self, dispatcher: Dispatcher, orders: Collection[int], seconds: float) -> None:
        """For tasks whose work has not been done yet: only then it is not known when they will be answered."""
        self._limits |= dict.fromkeys(dispatcher.waiting.keys() & set(orders), (self.now + seconds, seconds))

    def refuse_impossible(self, dispatcher: Dispatcher, rules: ExchangeRules, takes_late: bool) -> None:
        """See `feasible.py`."""
        waiting = [one for one in dispatcher.waiting.values() if not one.task.test_evaluation]
        trips = [
            Trip(one.task.client, self._links.get(one.task.client, INSTANT), one.size, one.task.macs, one.task.returns)
            for one in waiting
        ]
        for trip in trips:
            trip.refuse_short_log()
        refuse_impossible(trips, rules, takes_late, self.now, self._free)

    def in_flight(self, dispatcher: Dispatcher) -> dict[int, Task]:
        """Without replies that the staleness mix holds back: no exchange of this round could wait for them."""
        held = [order for order, found in self._travelling.items() if found.held(dispatcher.round)]
        return {order: task for order, task in self.at_work(dispatcher).items() if order not in held}

    def at_work(self, dispatcher: Dispatcher) -> dict[int, Task]:
        """A client whose reply is held back by the staleness mix has done its work."""
        dispatcher.finish_work()
        under_way = {order: found.reply.task for order, found in self._travelling.items() if self._under_way(found)}
        return under_way | {order: envelope.task for order, envelope in self._silent.items()}

    def forget(self, reply: Reply) -> None:
        self._timeline.forget(reply)

    def events(self) -> Payload:
        return {"simulation": self._timeline.engine_events(self.now)}

    # -- waiting --------------------------------------------------------------------------------------------------

    def wait(self, dispatcher: Dispatcher, enough: Enough, limit: float) -> None:
        end = self.now + limit
        dispatcher.finish_work()
        self._land_arrived(dispatcher)
        while not enough.met(dispatcher.done, self._held(dispatcher.round), self._coming()):
            under_way = (found.journey.arrived for found in self._travelling.values() if self._under_way(found))
            coming = min(under_way, default=math.inf)
            self._pass_time(dispatcher, min(coming, end))
            if coming > end or coming == math.inf:
                self._give_up_on_the_silent(dispatcher)
                break
            self._land_arrived(dispatcher)

    def stream(self, dispatcher: Dispatcher, orders: Sequence[int], limit: float) -> Iterator[int]:
        """Whether a reply is in time depends on its own task alone, so replies can be streamed."""
        end = self.now + limit
        self.limit(dispatcher, orders, limit)
        self._streamed |= dispatcher.waiting.keys() & set(orders)
        for order in orders:
            if order in self._silent:  # not earlier: its error would take up the window
                self._times[order] = end
                self._fall_silent(dispatcher, self._silent.pop(order), end)
            while order not in dispatcher.done:
                dispatcher.feed(streaming=True)
                dispatcher.collect(math.inf)
            self._pass_time(dispatcher, self._times.pop(order, self.now))
            yield order

    def _pass_time(self, dispatcher: Dispatcher, until: float) -> None:
        if self.now < until < math.inf:
            dispatcher.ledger.elapsed(until - self.now)
            self.now = until

    def _under_way(self, found: TravellingReply) -> bool:
        return found.journey.arrived > self.now

    def _held(self, round_number: int) -> set[int]:
        """The replies that would be here if the staleness mix did not hold them back."""
        return {
            order
            for order, found in self._travelling.items()
            if found.held(round_number) and not self._under_way(found)
        }

    def _coming(self) -> set[int]:
        """The replies that may still come, as far as the server can know: also those of the silent."""
        return {order for order, found in self._travelling.items() if self._under_way(found)} | self._silent.keys()

    # -- the way of a task ----------------------------------------------------------------------------------------

    def send(self, dispatcher: Dispatcher, envelope: Envelope) -> Envelope | None:
        envelope = replace(envelope, sent=self.now)
        if not self._drops_out(envelope):
            return envelope
        self._silent[envelope.order] = envelope
        dispatcher.cache.lose(envelope.task.client)  # it is not known whether anything reached it
        return None

    def _drops_out(self, envelope: Envelope) -> bool:
        if envelope.task.test_evaluation or not self._dropout:
            return False
        name = ("dropout", envelope.round, envelope.task.client, envelope.number)
        again = (self._tried,) if self._tried else ()
        return bool(stream(self._seed, *name, *again).random() < self._dropout)

    def _lateness(self, envelope: Envelope) -> int:
        """How many rounds late the reply comes."""
        if self._shares is None or envelope.round <= self._prompt_rounds:
            return 0
        rng = stream(self._seed, "staleness", envelope.round, envelope.task.client, envelope.number)
        return int(rng.choice(len(self._shares), p=self._shares))

    def finish(self, dispatcher: Dispatcher, envelope: Envelope, outcome: Outcome) -> None:
        """The real work is done: from here on the reply travels in virtual time."""
        task, order = envelope.task, envelope.order
        end, limit = self._limits.pop(order, (math.inf, math.inf))
        streamed = order in self._streamed
        self._streamed.discard(order)
        if task.test_evaluation:
            reply, fate = dispatcher.check(envelope, outcome)
            dispatcher.arrive(order, reply, fate, outcome.size)
            return
        began = max(envelope.sent, self._free.get(task.client, 0.0))
        journey = self._links.get(task.client, INSTANT).journey(began, envelope.size, task.macs, outcome.size)
        in_time = journey.arrived <= end
        if not in_time:
            outcome = Outcome(order, error=f"no reply within {limit:g} s")
            if journey.downloaded > end:
                dispatcher.cache.lose(task.client)
            journey = journey.cut(end)
        self._free[task.client] = max(journey.arrived, self._free.get(task.client, 0.0))
        reply, fate = dispatcher.check(envelope, outcome)
        due = envelope.round if streamed or not in_time else envelope.round + self._lateness(envelope)
        found = TravellingReply(order, reply, fate, outcome.size, journey, due)
        if streamed:
            self._times[order] = journey.arrived
            self._land(dispatcher, found)
        else:
            self._travelling[order] = found

    def _land_arrived(self, dispatcher: Dispatcher) -> None:
        for order, found in sorted(self._travelling.items()):
            if found.arrives(dispatcher.round) <= self.now:
                del self._travelling[order]
                self._land(dispatcher, found)

    def _land(self, dispatcher: Dispatcher, found: TravellingReply) -> None:
        in_time: Fate = "used" if found.reply.round == dispatcher.round else "late"
        held_until = self.now if found.due != found.reply.round else None
        self._timeline.add(found.order, found.reply, found.journey, found.fate or in_time, held_until)
        dispatcher.arrive(found.order, found.reply, found.fate, found.size)

    def _give_up_on_the_silent(self, dispatcher: Dispatcher) -> None:
        for order in sorted(self._silent):
            self._fall_silent(dispatcher, self._silent.pop(order), self.now)

    def _fall_silent(self, dispatcher: Dispatcher, envelope: Envelope, until: float) -> None:
        waited = until - envelope.sent
        error = f"no reply within {waited:g} s" if 0 < waited < math.inf else "no reply"
        reply, fate = dispatcher.check(envelope, Outcome(envelope.order, error=error))
        end = max(until if until < math.inf else 0.0, self.now)
        self._timeline.silent(envelope.order, reply, envelope.sent, end)
        dispatcher.arrive(envelope.order, reply, fate, 0)

    # -- saving ---------------------------------------------------------------------------------------------------

    def snapshot(self) -> Payload:
        """Replies on their way are saved as they are: their clients may have done other work since."""
        return {
            "now": self.now,
            "free": dict(self._free),
            "silent": [plain_envelope(self._silent[order]) for order in sorted(self._silent)],
            "travelling": [_plain(self._travelling[order]) for order in sorted(self._travelling)],
        }

    def restore(self, snapshot: Payload) -> None:
        self.now, self._free = snapshot["now"], dict(snapshot["free"])
        self._silent = {row["order"]: envelope_from_plain(row) for row in snapshot["silent"]}
        self._travelling = {row["order"]: _from_plain(row) for row in snapshot["travelling"]}


def _plain(found: TravellingReply) -> Payload:
    own = {"fate": found.fate, "size": found.size, "due": found.due, "journey": list(astuple(found.journey))}
    return {**plain_reply(found.order, found.reply), **own}


def _from_plain(row: Payload) -> TravellingReply:
    reply = reply_from_plain(row)
    return TravellingReply(row["order"], reply, row["fate"], row["size"], Journey(*row["journey"]), row["due"])
