"""Three clients on a virtual network whose times can be computed by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.core.messages import Reply, Task
from atoll.federation.base import Federation
from atoll.federation.local import LocalFederation
from atoll.simulation.links import Link, Links, links_for
from atoll.simulation.network import NetworkFederation
from atoll.simulation.settings import SimulationSettings
from atoll.testing import made_table

DATA = made_table(clients=3)
A, B, C = DATA.names
SEED = 5


def network(inner: Federation, names: list[str], seed: int = SEED, **settings: Any) -> NetworkFederation:
    own = SimulationSettings(**settings)
    return NetworkFederation(inner, own, links_for(own, seed, names), seed)


def paced(
    macs_per_second: Mapping[str, float], links: Mapping[str, Link] | None = None, **settings: Any
) -> NetworkFederation:
    """A serial engine whose clients only compute, at these speeds; or with links of one's own."""
    found = {name: Link(speed=speed) for name, speed in macs_per_second.items()} | dict(links or {})
    return NetworkFederation(LocalFederation(DATA, SEED, 0), SimulationSettings(**settings), Links(found, ""), SEED)


def task(client: str, macs: int = 10, value: Any = None, job: str = "echo", **payload: Any) -> Task:
    own = {"value": client if value is None else value, **payload}
    return Task(f"{job}:{client}", client, f"atoll.testing.jobs:{job}", own, macs)


def values(replies: list[Reply]) -> list[Any]:
    return [reply.payload.get("value") if reply.ok else reply.error for reply in replies]


def times(federation: NetworkFederation) -> list[list[Any]]:
    return federation.engine_events()["network"]["tasks"]  # type: ignore[no-any-return]
