"""Which tensors each client holds, so that they are not sent again."""

from __future__ import annotations

from dataclasses import dataclass, field

from atoll.core.messages import Payload

NO_DIGESTS: frozenset[str] = frozenset()


@dataclass
class ClientCache:
    """Each client holds the tensors of its last two tasks."""

    last: dict[str, tuple[frozenset[str], frozenset[str]]] = field(default_factory=dict)
    newest: frozenset[str] = NO_DIGESTS

    def of(self, client: str) -> frozenset[str]:
        older, newer = self.last.get(client, (NO_DIGESTS, NO_DIGESTS))
        return older | newer

    def take(self, client: str, digests: frozenset[str]) -> None:
        # Clients of a round mostly get the same tensors: with 10,000 of them a set each would be megabytes.
        self.newest = self.newest if digests == self.newest else digests
        self.last[client] = (self.last.get(client, (NO_DIGESTS, NO_DIGESTS))[1], self.newest)

    def lose(self, client: str) -> None:
        """A task may not have reached the client, so it is taken to hold nothing."""
        self.last.pop(client, None)

    def to_plain(self) -> Payload:
        """Each set once, and the numbers of the two that each client holds."""
        numbers: dict[frozenset[str], int] = {}
        clients = {
            name: [numbers.setdefault(older, len(numbers)), numbers.setdefault(newer, len(numbers))]
            for name, (older, newer) in self.last.items()
        }
        return {"sets": [sorted(digests) for digests in numbers], "clients": clients}

    @classmethod
    def from_plain(cls, plain: Payload) -> ClientCache:
        sets = [frozenset(digests) for digests in plain["sets"]]
        return cls({name: (sets[older], sets[newer]) for name, (older, newer) in plain["clients"].items()})
