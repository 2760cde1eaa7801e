"""Which node is which site. Flower's node numbers are random; sites are known by their registered names.

A node that is registered with a key has its name on the SuperLink. One without a key (in tests, on one machine) is
asked for it: a node that returns under a new number is recognised by its answer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from flwr.serverapp import Grid

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.deploy.flower.messages import ANSWER, HELLO, Arrived, Messages, pausing_on_failure
from atoll.errors import WireError

LOOK_EVERY = 2.0  # seconds between two looks at the SuperLink's list of nodes
GREETING_LIVES = 600.0  # seconds


@dataclass(frozen=True)
class Greeting:
    """A hello in flight to a node whose site is not known."""

    node: int


class Nodes:
    """The sites' nodes that are connected now."""

    def __init__(
        self, grid: Grid, look_every: float = LOOK_EVERY, greeting: bytes = wire.encode({"data": None})
    ) -> None:
        """`greeting`: what a node without a registered name is asked; the answer must have its name."""
        self._grid, self._every, self._greeting = grid, look_every, greeting
        self.messages = Messages(grid)
        self.reported: dict[int, Payload] = {}  # node -> what it answered to the greeting
        self._looked = float("-inf")
        self._names: dict[int, str] = {}  # of every node that was ever seen, in that order
        self._connected: set[int] = set()
        self._missing: dict[str, float] = {}  # site -> since when
        self._since: dict[int, str] = {}  # node -> when it was connected, by the SuperLink's clock

    def node_of(self, site: str) -> int | None:
        """The number of a site's node, or None while it is not connected. Of two with one name the first one stays."""
        self._look()
        for node, name in self._names.items():
            if name == site and node in self._connected:
                self._missing.pop(site, None)
                return node
        self._missing.setdefault(site, time.monotonic())
        return None

    def since(self, node: int) -> str:
        """When a node was connected: another value means that it was restarted. Empty where it is not known."""
        return self._since.get(node, "")

    def missing_for(self, site: str) -> float:
        """Seconds since a site was first missed."""
        return time.monotonic() - self._missing.get(site, time.monotonic())

    def gone(self, site: str) -> None:
        """The SuperLink reports that this site's node is not connected: look again before the next use."""
        self._missing.setdefault(site, time.monotonic())
        self._looked = float("-inf")

    def connected(self) -> dict[str, list[int]]:
        """Every connected site, with the nodes that claim its name (more than one is a fault)."""
        self._look()
        found: dict[str, list[int]] = {}
        for node, name in self._names.items():
            if node in self._connected:
                found.setdefault(name, []).append(node)
        return found

    def greeted(self, arrived: Arrived) -> None:
        """The name that a node without a registered one has given."""
        if arrived.error is not None:
            return  # it is asked again
        try:
            reported = wire.decode(arrived.frame, digests=False, limits=ANSWER)
        except WireError:
            return
        if isinstance(reported.get("name"), str):
            self._names[arrived.node] = reported["name"]
            self.reported[arrived.node] = reported

    def _look(self) -> None:
        if time.monotonic() - self._looked < self._every:
            return
        with pausing_on_failure():
            infos = list(self._grid.get_nodes())
        self._looked = time.monotonic()
        self._connected = {info.node_id for info in infos}
        self._since = {info.node_id: info.last_activated_at for info in infos}
        for info in infos:
            if info.name:
                self._names[info.node_id] = info.name
        self._ask(info.node_id for info in infos if info.node_id not in self._names)

    def _ask(self, unknown: Iterable[int]) -> None:
        for node in unknown:
            if not self.messages.awaits(Greeting(node)):
                self.messages.send(node, HELLO, self._greeting, Greeting(node), ttl=GREETING_LIVES)
