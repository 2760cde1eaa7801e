"""What the search costs the clients: bytes, multiply-accumulates, seconds, and the outcome of every reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

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


class Ledger:
    """One account per round, in order. Test evaluations, which serve the report only, are never entered."""

    def __init__(self) -> None:
        self.rounds: list[Account] = []

    def open_round(self) -> None:
        """Start the next round's account."""
        self.rounds.append(Account())

    @property
    def current(self) -> Account:
        if not self.rounds:
            self.open_round()
        return self.rounds[-1]

    def sent(self, size: int) -> None:
        self.current.tasks += 1
        self.current.bytes_down += size

    def received(self, fate: Fate | None, size: int = 0, macs: int = 0) -> None:
        """A reply has arrived. `fate=None`: it is counted later."""
        if fate is not None:
            self.counted(fate)
        self.current.bytes_up += size
        self.current.client_macs += macs

    def counted(self, fate: Fate) -> None:
        self.current.replies[fate] += 1

    def changed_its_mind(self, old: Fate, new: Fate) -> None:
        """A reply that was counted as `old` is now `new` (a method discarded a stale one)."""
        self.current.replies[old] -= 1
        self.current.replies[new] += 1

    def elapsed(self, seconds: float) -> None:
        self.current.simulated_seconds += seconds

    def total(self) -> Account:
        total = Account()
        for account in self.rounds:
            total.add(account)
        return total

    def to_plain(self) -> list[dict[str, Any]]:
        return [asdict(account) for account in self.rounds]

    @classmethod
    def from_plain(cls, rows: list[Mapping[str, Any]]) -> Ledger:
        ledger = cls()
        ledger.rounds = [Account(**{**row, "replies": dict(row["replies"])}) for row in rows]
        return ledger

    def report(self) -> dict[str, Any]:
        """The totals and the accounts of all rounds, as in `result.json`."""
        return {"rounds": len(self.rounds), **asdict(self.total()), "per_round": self.to_plain()}
