"""Which tensors each client holds, so that they are not sent again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from atoll.core.messages import Payload

LIMIT = 256_000_000  # bytes that a client holds, unless its last two tasks need more
MOST = 16  # tasks of which a client holds the tensors: looking through more of them takes milliseconds a task

Held = tuple[frozenset[str], ...]  # the tensors of a client's last tasks, the newest last


@dataclass
class ClientCache:
    """Each client holds the tensors of its last tasks: always of two, of more as far as they fit into the limit."""

    held: dict[str, Held] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)  # bytes of every tensor that a client holds
    newest: frozenset[str] = frozenset()

    def of(self, client: str) -> frozenset[str]:
        return frozenset().union(*self.held.get(client, ()))

    def take(self, client: str, sizes: Mapping[str, int]) -> None:
        """The client gets a task with these tensors, by digest with their bytes."""
        digests = frozenset(sizes)
        # Clients of a round mostly get the same tensors: with 10,000 of them a set each would be megabytes.
        self.newest = self.newest if digests == self.newest else digests
        self.sizes.update(sizes)
        held = (*self.held.get(client, ()), self.newest)[-MOST:]
        while len(held) > 2 and self._bytes(frozenset().union(*held)) > LIMIT:
            held = held[1:]
        self.held[client] = held

    def lose(self, client: str) -> None:
        """A task may not have reached the client, so it is taken to hold nothing."""
        self.held.pop(client, None)

    def to_plain(self) -> Payload:
        """Each tensor and each set once, and the numbers of those that each client holds."""
        numbers: dict[frozenset[str], int] = {}
        clients = {
            name: [numbers.setdefault(digests, len(numbers)) for digests in held] for name, held in self.held.items()
        }
        self.sizes = {digest: self.sizes[digest] for digests in numbers for digest in sorted(digests)}
        places = {digest: place for place, digest in enumerate(self.sizes)}
        sets = [sorted(places[digest] for digest in digests) for digests in numbers]
        return {"tensors": [[digest, size] for digest, size in self.sizes.items()], "sets": sets, "clients": clients}

    @classmethod
    def from_plain(cls, plain: Payload) -> ClientCache:
        digests = [digest for digest, _ in plain["tensors"]]
        sets = [frozenset(digests[place] for place in places) for places in plain["sets"]]
        held = {name: tuple(sets[number] for number in numbers) for name, numbers in plain["clients"].items()}
        return cls(held, dict(plain["tensors"]))

    def _bytes(self, digests: Iterable[str]) -> int:
        return sum(self.sizes[digest] for digest in digests)
