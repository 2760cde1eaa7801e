"""What the search costs the clients: bytes, multiply-accumulates, seconds, and the outcome of every reply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from atoll.core.messages import REJECTED

REASON = 200  # characters of a reason that are kept
REASONS = 10  # kinds of failure that a client's account tells apart: a client may send a new one each time
OTHER = "other reasons"
Fate = Literal["used", "late", "stale", "rejected", "failed"]
FATES: tuple[Fate, ...] = ("used", "late", "stale", "rejected", "failed")


def _no_replies() -> dict[str, int]:
    return dict.fromkeys(FATES, 0)


@dataclass
class Account:
    """Sums of one round, or of all of them."""

    tasks: int = 0
    replies: dict[str, int] = field(default_factory=_no_replies)
    bytes_down: int = 0
    bytes_up: int = 0
    client_macs: int = 0
    simulated_seconds: float = 0.0

    def add(self, other: Account) -> None:
        self.tasks += other.tasks
        for fate, count in other.replies.items():
            self.replies[fate] += count
        self.bytes_down += other.bytes_down
        self.bytes_up += other.bytes_up
        self.client_macs += other.client_macs
        self.simulated_seconds += other.simulated_seconds


@dataclass
class ClientAccount:
    """What became of one client's tasks. Reasons are short: the first words of the error."""

    rounds: int = 0  # in which it was asked
    asked: int = 0
    used: int = 0
    late: int = 0
    stale: int = 0
    rejected: dict[str, int] = field(default_factory=dict)  # by reason
    failed: dict[str, int] = field(default_factory=dict)  # by reason
    strikes: int = 0  # exchanges in which all its replies were rejected, and those of most others were not
    set_aside: int = 0  # the round since which it is not asked any more; 0: it is
    epsilon: float = 0.0  # under `[privacy]`, in results: what was spent of its budget
    delta: float = 0.0

    def count(self, fate: Fate, reason: str = "", number: int = 1) -> None:
        if fate == "rejected" or fate == "failed":
            counts: dict[str, int] = getattr(self, fate)
            reason = reason if reason in counts or len(counts) < REASONS else OTHER
            counts[reason] = counts.get(reason, 0) + number
        else:
            setattr(self, fate, getattr(self, fate) + number)

    def add(self, other: ClientAccount) -> None:
        self.rounds += other.rounds
        self.asked += other.asked
        self.used += other.used
        self.late += other.late
        self.stale += other.stale
        for reason, number in other.rejected.items():
            self.count("rejected", reason, number)
        for reason, number in other.failed.items():
            self.count("failed", reason, number)
        self.strikes += other.strikes
        self.set_aside = other.set_aside or self.set_aside
        self.epsilon = max(self.epsilon, other.epsilon)
        self.delta = max(self.delta, other.delta)

    def to_plain(self) -> dict[str, Any]:
        """Without what is zero."""
        return {name: value for name, value in asdict(self).items() if value}

    def report(self, rounds: int) -> dict[str, Any]:
        """As in `result.json`; `idle` counts those of the run's `rounds` in which the client was not asked."""
        return {"asked": 0, "used": 0, **self.to_plain(), "idle": max(0, rounds - self.rounds)}

    @property
    def useless(self) -> bool:
        """It was asked, and no reply of it was ever used."""
        return self.asked > 0 and not (self.used or self.late)


class Ledger:
    """One account per round, in order, and one per client. Test evaluations, which serve the report only, are never
    entered."""

    def __init__(self) -> None:
        self.rounds: list[Account] = []
        self._before = Account()  # the sum of all rounds but the last
        self.clients: dict[str, ClientAccount] = {}
        self.this_round: dict[str, ClientAccount] = {}  # the clients' accounts of the current round alone

    def open_round(self) -> None:
        """Start the next round's account."""
        if self.rounds:
            self._before.add(self.rounds[-1])
        self.rounds.append(Account())
        self.this_round = {}

    @property
    def current(self) -> Account:
        if not self.rounds:
            self.open_round()
        return self.rounds[-1]

    def sent(self, client: str, size: int) -> None:
        self.current.tasks += 1
        self.current.bytes_down += size
        first = client not in self.this_round
        for account in self._accounts(client):
            account.asked += 1
            account.rounds += first

    def received(self, fate: Fate | None, size: int = 0, macs: int = 0, client: str = "", reason: str = "") -> None:
        """A reply has arrived. `fate=None`: it is counted later. A reply of no known client has no name."""
        if fate is not None:
            self.counted(fate, client, reason)
        self.current.bytes_up += size
        self.current.client_macs += macs

    def counted(self, fate: Fate, client: str, reason: str = "") -> None:
        self.current.replies[fate] += 1
        for account in self._accounts(client):
            account.count(fate, _short(reason))

    def changed_its_mind(self, client: str, old: Fate, new: Fate, reason: str = "") -> None:
        """A reply that was counted as `old` is now `new`: it was discarded as stale, or rejected after all."""
        self.current.replies[old] -= 1
        self.current.replies[new] += 1
        for account in self._accounts(client):
            account.count(old, number=-1)
            account.count(new, _short(reason))

    def strike(self, client: str, most: int, number: int) -> bool:
        """Count a strike in round `number`; whether it is the one after which the client is set aside (0: none is)."""
        accounts = self._accounts(client)
        for account in accounts:
            account.strikes += 1
        over = 0 < most <= self.clients[client].strikes and not self.clients[client].set_aside
        if over:
            for account in accounts:
                account.set_aside = number
        return over

    def is_set_aside(self, client: str) -> bool:
        return client in self.clients and self.clients[client].set_aside > 0

    def _accounts(self, client: str) -> list[ClientAccount]:
        if not client:
            return []
        return [held.setdefault(client, ClientAccount()) for held in (self.clients, self.this_round)]

    def elapsed(self, seconds: float) -> None:
        self.current.simulated_seconds += seconds

    def total(self) -> Account:
        total = account_from_plain(asdict(self._before))
        if self.rounds:
            total.add(self.rounds[-1])
        return total

    def to_plain(self) -> dict[str, Any]:
        rounds = [asdict(account) for account in self.rounds]
        return {"rounds": rounds, "clients": {name: own.to_plain() for name, own in self.clients.items()}}

    def without_rounds(self, number: int) -> dict[str, Any]:
        """As `to_plain`, without the last `number` rounds: the event log has those, so that what a checkpoint writes
        does not grow with the rounds."""
        rounds = [asdict(account) for account in self.rounds[: len(self.rounds) - number]]
        return {"before": rounds, "clients": {name: own.to_plain() for name, own in self.clients.items()}}

    def restore(self, saved: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]] = ()) -> None:
        """Continue from what `to_plain` gave, or `without_rounds` and these rounds, between two rounds."""
        kept = saved["rounds"] if "rounds" in saved else [*saved["before"], *rounds]
        self.rounds = [account_from_plain(row) for row in kept]
        self._before = Account()
        for account in self.rounds[:-1]:
            self._before.add(account)
        self.clients = {name: ClientAccount(**own) for name, own in saved["clients"].items()}
        self.this_round = {}

    def report(self) -> dict[str, Any]:
        """The totals and the accounts of all rounds, as in `result.json`."""
        return {"rounds": len(self.rounds), **asdict(self.total()), "per_round": self.to_plain()["rounds"]}


def account_from_plain(row: Mapping[str, Any]) -> Account:
    return Account(**{**row, "replies": dict(row["replies"])})


def _short(reason: str) -> str:
    """The start of an error, up to its first detail: errors that differ in numbers only count together."""
    text = reason.removeprefix(REJECTED).partition(":")[0] if reason.startswith(REJECTED) else reason
    return text[:REASON]
