"""Three clients on a virtual network whose times can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.core.messages import Reply, Task
from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.journal import Journal
from atoll.federation.local import local_federation
from atoll.simulation.links import Link, Links, links_for
from atoll.simulation.network import VirtualTime
from atoll.simulation.settings import SimulationSettings
from atoll.testing import made_table

DATA = made_table(clients=3)
A, B, C = DATA.names
SEED = 5


def network(
    data: Federated,
    workers: int = 0,
    seed: int = SEED,
    journal: Journal | None = None,
    rules: ExchangeRules | None = None,
    deadline: float | None = None,
    **settings: Any,
) -> Federation:
    """All clients of `data` on a virtual network with these settings."""
    clock = clock_of(data, seed, SimulationSettings(**settings))
    return local_federation(data, seed, workers, deadline=deadline, clock=clock, journal=journal, rules=rules)


def clock_of(data: Federated, seed: int, settings: SimulationSettings) -> VirtualTime:
    return VirtualTime(settings, links_for(settings, seed, data.names), seed)


def paced(
    macs_per_second: Mapping[str, float],
    links: Mapping[str, Link] | None = None,
    rules: ExchangeRules | None = None,
    deadline: float | None = None,
    **settings: Any,
) -> Federation:
    """A serial engine whose clients only compute, at these speeds; or with links of one's own."""
    found = {name: Link(speed=speed) for name, speed in macs_per_second.items()} | dict(links or {})
    own = SimulationSettings(**settings)
    clock = VirtualTime(own, Links(found, ""), SEED)
    return local_federation(DATA, SEED, 0, deadline=deadline, clock=clock, rules=rules)


def now(federation: Federation) -> float:
    """Virtual seconds since the beginning."""
    return federation.snapshot()["clock"]["now"]  # type: ignore[no-any-return]


def task(client: str, macs: int = 10, value: Any = None, job: str = "echo", **payload: Any) -> Task:
    own = {"value": client if value is None else value, **payload}
    return Task(f"{job}:{client}", client, f"atoll.testing.jobs:{job}", own, macs)


def values(replies: list[Reply]) -> list[Any]:
    return [reply.payload.get("value") if reply.ok else reply.error for reply in replies]


def times(federation: Federation) -> list[list[Any]]:
    return federation.engine_events()["simulation"]["tasks"]  # type: ignore[no-any-return]
