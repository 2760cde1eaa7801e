"""The virtual network: any engine's clients, with a clock of its own instead of the wall's.

A task that is sent at virtual time t is answered at

    t + download (bytes that travel, over the client's bandwidth from t on)
      + compute  (the task's MACs / the client's speed)
      + upload   (bytes of the reply, over its bandwidth)

or as soon as the client is done with what it was sent before. The inner engine does the real work, in whatever order
suits it; which reply is there when is decided by virtual time only, so a run gives the same bits on every machine and
for any number of workers. Before the clock moves, all work in flight is really done: only then it is known what comes
first. What differs from an engine that waits for real:

- A task may get no answer at all (`dropout`). Its reply is an error when a deadline is over, when nothing else is
  under way, or when the next round begins, whatever is first.
- By a `staleness` mix a reply to a task of `send` comes exactly so many rounds late; its client goes on meanwhile, and
  a round that waits for it waits only until its work is done.
- A deadline is in virtual seconds. Audits measure for the report, take no time and are always answered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace

from atoll.core.ledger import Fate
from atoll.core.messages import ClientInfo, Payload, Reply, Task
from atoll.federation.base import Federation
from atoll.federation.envelopes import (
    Envelope,
    Outcome,
    envelope_from_plain,
    plain_envelope,
    plain_reply,
    reply_from_plain,
)
from atoll.rng import stream
from atoll.simulation.links import Journey, Link, Links
from atoll.simulation.settings import SimulationSettings
from atoll.simulation.timeline import Timeline

INSTANT = Link()


@dataclass(frozen=True)
class Parcel:
    """A reply on its way to the server."""

    order: int
    reply: Reply
    fate: Fate | None  # rejected or failed; None: it is good, and used or late as it arrives
    size: int
    journey: Journey
    due: int  # the first round in which it may arrive

    def arrives(self, round_number: int) -> float:
        """When it is there, as seen from this round."""
        return math.inf if self.held(round_number) else self.journey.arrived

    def held(self, round_number: int) -> bool:
        """It is late by a number of rounds, and that round is yet to come."""
        return self.due > round_number


class NetworkFederation(Federation):
    """`inner`, an engine that nothing has been sent to, on a virtual network. Closing this closes it."""

    def __init__(self, inner: Federation, settings: SimulationSettings, links: Links, seed: int) -> None:
        super().__init__(inner._transport, inner.clients(), inner.ledger, inner._benchmark, settings.deadline)
        self._links, self._seed = links.of, seed
        self._dropout, self._shares = settings.dropout, settings.shares()
        self._prompt_rounds = settings.staleness_after
        self._clock = 0.0
        self._tried = 0  # how often this round failed before a pause: who was silent then need not be so again
        self._free: dict[str, float] = {}  # until when each client is busy
        self._silent: dict[int, Envelope] = {}  # will never be answered
        self._travelling: dict[int, Parcel] = {}
        self._streamed: dict[int, float] = {}  # tasks of `map`: when they are given up
        self._times: dict[int, float] = {}  # replies to `map` on the shelf: when they were there
        self._timeline = Timeline()
        self._clients = self._measured(self._clients)

    # -- who there is, and when ---------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """Virtual seconds since the beginning of the run."""
        return self._clock

    def begin(self, number: int, tried: int = 0) -> None:
        super().begin(number, tried)
        self._tried = tried
        self._timeline.open(self._clock)
        self._clients = self._measured(self._clients)
        self._give_up_on_the_silent()

    def engine_events(self) -> Payload:
        return {**super().engine_events(), "network": self._timeline.engine_events(self._clock)}

    @property
    def busy(self) -> frozenset[str]:
        """As on every engine. A client whose reply is held back by the staleness mix has done its work."""
        self._finish_work()
        at_work = [parcel.reply.task for parcel in self._travelling.values() if parcel.journey.arrived > self._clock]
        return frozenset(task.client for task in (*at_work, *(envelope.task for envelope in self._silent.values())))

    def _measured(self, clients: Sequence[ClientInfo]) -> list[ClientInfo]:
        """The clients with their data rates of this moment."""
        links = [(info, self._links.get(info.name, INSTANT)) for info in clients]
        return [replace(info, bandwidth=link.rate(self._clock), speed=link.speed) for info, link in links]

    def _pass_time(self, until: float) -> None:
        if self._clock < until < math.inf:
            self.ledger.elapsed(until - self._clock)
            self._clock = until

    # -- talking to clients -------------------------------------------------------------------------------------------

    def receive(self, at_least: int | None = None, deadline: float | None = None) -> list[Reply]:
        """As on every engine. Looking without waiting (`at_least=0`) lets no time pass."""
        limit = deadline if deadline is not None else self.deadline
        end = math.inf if limit is None else self._clock + limit
        self._finish_work()
        # What the staleness mix holds back is no answer that this round could wait for.
        coming_late = {order for order, parcel in self._travelling.items() if not parcel.held(self.round)}
        counted = self._last_send or coming_late | self._silent.keys()
        wanted = len(self._last_send) if at_least is None else min(at_least, len(counted))
        self._land_what_is_here()
        while self._answered(counted) < wanted:
            under_way = (parcel.journey.arrived for parcel in self._travelling.values())
            coming = min((moment for moment in under_way if moment > self._clock), default=math.inf)
            self._pass_time(min(coming, end))
            if coming > end or coming == math.inf:
                self._give_up_on_the_silent()
                break
            self._land_what_is_here()
        return [self._deliver(order) for order in sorted(self._done)]

    def map(self, tasks: Sequence[Task]) -> Iterator[Reply]:
        """As on every engine: streamed. Who is in time can be said of each task alone, without knowing the others."""
        self._last_send = set()
        end = math.inf if self.deadline is None else self._clock + self.deadline
        orders = [self._enter(task) for task in tasks]
        self._streamed |= dict.fromkeys(self._waiting.keys() & set(orders), end)
        for order in orders:
            if order in self._silent:  # not before it is asked for: its error would take the room of work to be done
                self._times[order] = end
                self._fall_silent(self._silent.pop(order), end)
            while order not in self._done:
                self._feed(streaming=True)
                self._collect(None)
            self._pass_time(self._times.pop(order, self._clock))
            yield self._deliver(order)

    def forget(self, reply: Reply) -> None:
        super().forget(reply)
        self._timeline.forget(reply)

    # -- saving -------------------------------------------------------------------------------------------------------

    def snapshot(self) -> Payload:
        """Replies on their way are saved as they are: their clients may have done other work since."""
        own = {
            "clock": self._clock,
            "free": dict(self._free),
            "silent": [plain_envelope(self._silent[order]) for order in sorted(self._silent)],
            "travelling": [_plain_parcel(self._travelling[order]) for order in sorted(self._travelling)],
        }
        return {**super().snapshot(), "network": own}

    def restore(self, snapshot: Payload) -> None:
        super().restore(snapshot)
        own = snapshot["network"]
        self._clock, self._free = own["clock"], dict(own["free"])
        self._silent = {row["order"]: envelope_from_plain(row) for row in own["silent"]}
        self._travelling = {row["order"]: _parcel_from_plain(row) for row in own["travelling"]}

    # -- the desk behind the counter ----------------------------------------------------------------------------------

    def _enter(self, task: Task) -> int:
        order = super()._enter(task)
        if order in self._waiting:
            envelope = replace(self._waiting.pop(order), sent=self._clock)
            if self._drops_out(envelope):
                self._silent[order] = envelope
                self._holdings.lose(task.client)  # nobody knows whether anything reached it
            else:
                self._waiting[order] = envelope
        return order

    def _drops_out(self, envelope: Envelope) -> bool:
        if envelope.task.test_evaluation or not self._dropout:
            return False
        name = ("dropout", envelope.round, envelope.task.client, envelope.number)
        again = (self._tried,) if self._tried else ()
        return bool(stream(self._seed, *name, *again).random() < self._dropout)

    def _answered(self, orders: set[int]) -> int:
        """How many of these are here, or would be if the staleness mix did not hold them back."""
        at_hand = (self._travelling[order] for order in orders & self._travelling.keys())
        held = sum(parcel.held(self.round) and parcel.journey.arrived <= self._clock for parcel in at_hand)
        return len(orders & self._done.keys()) + held

    def _lateness(self, envelope: Envelope) -> int:
        """How many rounds late the reply comes."""
        if self._shares is None or envelope.round <= self._prompt_rounds:
            return 0
        rng = stream(self._seed, "staleness", envelope.round, envelope.task.client, envelope.number)
        return int(rng.choice(len(self._shares), p=self._shares))

    def _finish_work(self) -> None:
        """All that is in flight is really done; when it arrives is another matter."""
        while self._waiting or self._working:
            self._feed()
            self._collect(None)

    def _shelve(self, envelope: Envelope, outcome: Outcome) -> None:
        """The real work is done: from here on the reply travels in virtual time."""
        task, order = envelope.task, envelope.order
        end = self._streamed.pop(order, None)
        if task.test_evaluation:
            super()._shelve(envelope, outcome)
            return
        began = max(envelope.sent, self._free.get(task.client, 0.0))
        journey = self._links.get(task.client, INSTANT).journey(began, envelope.size, task.macs, outcome.size)
        if end is not None and journey.arrived > end:
            outcome = Outcome(order, error=f"no reply within {self.deadline:g} s")
            if journey.downloaded > end:
                self._holdings.lose(task.client)
            journey = journey.cut(end)
        self._free[task.client] = journey.arrived
        reply, fate = self._judge(envelope, outcome)
        due = envelope.round if end is not None else envelope.round + self._lateness(envelope)
        parcel = Parcel(order, reply, fate, outcome.size, journey, due)
        if end is None:
            self._travelling[order] = parcel
        else:
            self._times[order] = journey.arrived
            self._land(parcel)

    def _land_what_is_here(self) -> None:
        for order, parcel in sorted(self._travelling.items()):
            if parcel.arrives(self.round) <= self._clock:
                del self._travelling[order]
                self._land(parcel)

    def _land(self, parcel: Parcel) -> None:
        reply = parcel.reply
        self._book(reply.task, parcel.fate, parcel.size)
        in_time: Fate = "used" if reply.round == self.round else "late"
        held_until = self._clock if parcel.due != reply.round else None
        self._timeline.add(parcel.order, reply, parcel.journey, parcel.fate or in_time, held_until)
        self._done[parcel.order] = reply

    def _give_up_on_the_silent(self) -> None:
        for order in sorted(self._silent):
            self._fall_silent(self._silent.pop(order), self._clock)

    def _fall_silent(self, envelope: Envelope, until: float) -> None:
        waited = until - envelope.sent
        words = f"no reply within {waited:g} s" if 0 < waited < math.inf else "no reply"
        reply, fate = self._judge(envelope, Outcome(envelope.order, error=words))
        self._book(envelope.task, fate, 0)
        self._timeline.silent(
            envelope.order, reply, envelope.sent, max(until if until < math.inf else 0.0, self._clock)
        )
        self._done[envelope.order] = reply


def _plain_parcel(parcel: Parcel) -> Payload:
    own = {"fate": parcel.fate, "size": parcel.size, "due": parcel.due, "journey": list(astuple(parcel.journey))}
    return {**plain_reply(parcel.order, parcel.reply), **own}


def _parcel_from_plain(row: Payload) -> Parcel:
    reply = reply_from_plain(row)
    return Parcel(row["order"], reply, row["fate"], row["size"], Journey(*row["journey"]), row["due"])
