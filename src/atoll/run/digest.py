"""A run reduced to what reports show, from its events, one after the other: numbers by round, fronts, accounts.

Memory stays small whatever the number of rounds: numbers are kept as arrays, fronts and moments of tasks only of some
rounds.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from atoll.core.ledger import FATES, Account, ClientAccount, account_from_plain

MOST_SERIES = 300  # numbers that a round can hold: a method from outside may add any
FRONTS = 64  # rounds whose front is kept, evenly spread, always with the first and the last
TIMELINE = 8  # rounds of which the moments of every task are kept
FAILURES = 50  # failed attempts that are kept with their reason
LARGEST = 1e300  # numbers above it, infinity and NaN are left out
NOT_SCALARS = {"front", "candidates", "untrained"}
COSTS = ("bytes_up", "bytes_down", "client_macs", "simulated_seconds", "tasks")


def scalars(metrics: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Every finite number in the metrics of a round; those in tables have dots in their names: `high.error`."""
    yield from _scalars(metrics, "", 3)


def _scalars(table: Mapping[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for key, value in table.items():
        if key in NOT_SCALARS and not prefix:
            continue
        if isinstance(value, Mapping) and depth > 1:
            yield from _scalars(value, f"{prefix}{key}.", depth - 1)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < LARGEST:
            yield f"{prefix}{key}", float(value)


@dataclass
class Series:
    """A number in the rounds in which it was measured."""

    rounds: array[int] = field(default_factory=lambda: array("q"))
    values: array[float] = field(default_factory=lambda: array("d"))

    def add(self, number: int, value: float) -> None:
        self.rounds.append(number)
        self.values.append(value)

    def __len__(self) -> int:
        return len(self.rounds)

    def __iter__(self) -> Iterator[tuple[int, float]]:
        return zip(self.rounds, self.values, strict=True)

    @property
    def last(self) -> float:
        return self.values[-1]


@dataclass(frozen=True)
class FrontOfRound:
    """The networks of a front: name, and its objectives in the order of `objectives`."""

    round: int
    objectives: tuple[str, ...]  # empty: those of the setting `objectives`
    networks: list[tuple[str, tuple[float, ...]]]
    picks: dict[str, str]  # pick -> name


@dataclass(frozen=True)
class FailedAttempt:
    """A round that too few clients answered."""

    round: int
    attempt: int
    reason: str


@dataclass
class RunDigest:
    """What the events of a run say, so far."""

    series: dict[str, Series] = field(default_factory=dict)  # of the metrics
    costs: dict[str, Series] = field(default_factory=lambda: {name: Series() for name in COSTS})  # of each round alone
    replies: dict[str, Series] = field(default_factory=lambda: {fate: Series() for fate in FATES})
    epsilons: dict[str, Series] = field(default_factory=dict)  # under `[privacy]`: the largest and the smallest
    seconds: Series = field(default_factory=Series)  # of wall-clock time since the start of the run
    phases: list[tuple[int, str]] = field(default_factory=list)  # the rounds in which a phase begins
    fronts: list[FrontOfRound] = field(default_factory=list)
    iterations: dict[int, list[dict[str, Any]]] = field(default_factory=dict)  # of a search by pruning
    chosen: dict[int, dict[str, Any]] = field(default_factory=dict)  # iteration -> network, error, resources
    timeline: list[dict[str, Any]] = field(default_factory=list)  # `simulation` of the last rounds
    latencies: dict[str, Series] = field(default_factory=lambda: {"longest": Series(), "mean": Series()})
    failures: list[FailedAttempt] = field(default_factory=list)
    failed_attempts: int = 0
    last: dict[str, Any] = field(default_factory=dict)  # the metrics of the last round
    total: Account = field(default_factory=Account)
    round: int = 0
    rounds: int = 0
    _clients: dict[str, ClientAccount] = field(default_factory=dict)
    _attempt: tuple[int, Mapping[str, Any]] | None = None  # a failed round whose next attempt may follow
    _seen: int = 0  # fronts
    _places: list[int] = field(default_factory=list)  # of the fronts that are kept, among all that were seen
    _every: int = 1

    @classmethod
    def of(cls, events: Iterable[Mapping[str, Any]]) -> RunDigest:
        found = cls()
        for event in events:
            found.add(event)
        return found

    def add(self, event: Mapping[str, Any]) -> None:
        """The next event of the log."""
        number = int(event["round"])
        if "metrics" not in event:
            self.failed_attempts += 1
            self.failures.append(FailedAttempt(number, int(event.get("attempt", 1)), str(event.get("failed", ""))))
            del self.failures[:-FAILURES]
            self._attempt = (number, event.get("clients", {}))
            return
        self.round, self.rounds = number, self.rounds + 1
        self._add_metrics(number, event["metrics"])
        self._add_costs(number, event)
        self._add_clients(event.get("clients", {}))
        self._attempt = None

    def _add_metrics(self, number: int, metrics: Mapping[str, Any]) -> None:
        self.last = dict(metrics)
        for name, value in scalars(metrics):
            if name in self.series or len(self.series) < MOST_SERIES:
                self.series.setdefault(name, Series()).add(number, value)
        phase = metrics.get("phase")
        if isinstance(phase, str) and (not self.phases or self.phases[-1][1] != phase):
            self.phases.append((number, phase))
        if isinstance(metrics.get("front"), list) and phase != "final":
            self._add_front(_front(number, metrics))
        if isinstance(metrics.get("candidates"), Mapping) and "iteration" in metrics:
            own = {unit: float(row["accuracy"]) for unit, row in metrics["candidates"].items() if "accuracy" in row}
            entry = {"round": int(metrics.get("round_in_iteration", number)), "accuracy": own}
            self.iterations.setdefault(int(metrics["iteration"]), []).append(entry)
        if "network" in metrics:
            place = int(metrics.get("iteration", len(self.chosen)))
            self.chosen[place] = {"round": number} | {
                key: metrics[key]
                for key in ("network", "chosen", "layer", "error", "test_error", "resources")
                if key in metrics
            }

    def _add_front(self, front: FrontOfRound) -> None:
        """All fronts while there are few; then every second, every fourth, ..., and always the last."""
        if self._places and self._places[-1] % self._every:  # it was there only because it was the last
            self.fronts.pop()
            self._places.pop()
        self.fronts.append(front)
        self._places.append(self._seen)
        self._seen += 1
        if len(self.fronts) > FRONTS:
            self._every *= 2
            kept = [n for n, place in enumerate(self._places) if place % self._every == 0 or place == self._seen - 1]
            self.fronts, self._places = [self.fronts[n] for n in kept], [self._places[n] for n in kept]

    def _add_costs(self, number: int, event: Mapping[str, Any]) -> None:
        if isinstance(ledger := event.get("ledger"), Mapping):
            account = account_from_plain(ledger)
            self.total.add(account)
            for name in COSTS:
                self.costs[name].add(number, getattr(account, name))
            for fate in FATES:
                self.replies[fate].add(number, account.replies[fate])
        if isinstance(spent := event.get("epsilon"), Mapping) and spent:
            for name, value in (("largest", max(spent.values())), ("smallest", min(spent.values()))):
                self.epsilons.setdefault(name, Series()).add(number, float(value))
        if "wall_seconds" in event:
            self.seconds.add(number, float(event["wall_seconds"]))
        if isinstance(times := event.get("simulation"), Mapping):
            self.timeline.append({"round": number, **times})
            del self.timeline[:-TIMELINE]
            took = [row[5] - row[2] for row in times["tasks"] if row[4] is not None and row[6] != "failed"]
            if took:
                self.latencies["longest"].add(number, max(took))
                self.latencies["mean"].add(number, sum(took) / len(took))

    def _add_clients(self, accounts: Mapping[str, Any]) -> None:
        for name, own in accounts.items():
            self._clients.setdefault(name, ClientAccount()).add(ClientAccount(**own))

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """The accounts of the clients that were asked so far, in the form of `result.json`."""
        found = dict(self._clients)
        rounds = self.rounds
        if self._attempt is not None:  # attempts that failed are part of the account of the one that will not
            rounds += 1
            for name, own in self._attempt[1].items():
                both = ClientAccount()
                for account in (found.get(name, ClientAccount()), ClientAccount(**own)):
                    both.add(account)
                found[name] = both
        return {name: own.report(rounds) for name, own in found.items()}


def _front(number: int, metrics: Mapping[str, Any]) -> FrontOfRound:
    networks = [(str(name), tuple(float(value) for value in values)) for name, *values in metrics["front"]]
    picks = {
        pick: str(value["key"])
        for pick, value in metrics.items()
        if isinstance(value, Mapping) and isinstance(value.get("key"), str)
    }
    return FrontOfRound(number, tuple(metrics.get("objectives", ())), networks, picks)
