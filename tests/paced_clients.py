"""Three clients on a virtual network whose times can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atoll.federation.base import Federation
from atoll.federation.local import LocalFederation
from atoll.federation.network import NetworkFederation
from atoll.federation.network_links import Link, Links, links_for
from atoll.federation.network_settings import NetworkSettings
from atoll.messages import Reply, Task
from atoll.testing import made_table

DATA = made_table(clients=3)
A, B, C = DATA.names
SEED = 5


def network(inner: Federation, names: list[str], seed: int = SEED, **settings: Any) -> NetworkFederation:
    own = NetworkSettings(**settings)
    return NetworkFederation(inner, own, links_for(own, seed, names), seed)


def paced(
    macs_per_second: Mapping[str, float], links: Mapping[str, Link] | None = None, **settings: Any
) -> NetworkFederation:
    """A serial engine whose clients only compute, at these speeds; or with links of one's own."""
    found = {name: Link(speed=speed) for name, speed in macs_per_second.items()} | dict(links or {})
    return NetworkFederation(LocalFederation(DATA, SEED, 0), NetworkSettings(**settings), Links(found, ""), SEED)


def task(client: str, macs: int = 10, value: Any = None, job: str = "echo", **payload: Any) -> Task:
    own = {"value": client if value is None else value, **payload}
    return Task(f"{job}:{client}", client, f"atoll.testing.jobs:{job}", own, macs)


def values(replies: list[Reply]) -> list[Any]:
    return [reply.payload.get("value") if reply.ok else reply.error for reply in replies]


def times(federation: NetworkFederation) -> list[list[Any]]:
    return federation.story()["network"]["tasks"]  # type: ignore[no-any-return]
