"""An engine whose clients are behind the virtual network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atoll.errors import ConfigError
from atoll.federation.base import Federation
from atoll.federation.engines import Engine, Request
from atoll.federation.local import LocalEngine
from atoll.simulation.links import links_for
from atoll.simulation.network import NetworkFederation
from atoll.simulation.settings import SimulationSettings


class NetworkEngine:
    """Another engine, with links between the server and its clients."""

    def __init__(self, inner: LocalEngine, network: SimulationSettings, request: Request) -> None:
        self.schema, self.clients, self.data = inner.schema, inner.clients, inner.data
        self._inner, self._network, self._seed = inner, network, request.seed
        self._links = links_for(network, request.seed, inner.federated.names, request.data_dir)

    def about(self) -> dict[str, Any]:
        """With the logs' digest: a resumed run must find the same links, too."""
        return {**self._inner.about(), "network": self._links.digest}

    def federation(self, run: str, directory: Path) -> Federation:
        return NetworkFederation(self._inner.federation(run, directory), self._network, self._links, self._seed)


def on_network(inner: Engine, network: SimulationSettings, request: Request, takes_late: bool) -> Engine:
    """The engine on the virtual network, or a `ConfigError` if they do not go together."""
    if not isinstance(inner, LocalEngine):
        raise ConfigError(
            f"network: a virtual one is for clients on this machine or cluster, and engine {request.engine.name} has a "
            "real one; leave the table out",
            code="real-network-engine",
        )
    if request.engine.deadline is not None:
        raise ConfigError(
            "engine.deadline counts real seconds, the virtual network its own; set network.deadline",
            code="deadline-not-virtual",
        )
    if network.staleness is not None and not takes_late:
        raise ConfigError(
            f"network.staleness: method {request.method} makes no use of late replies, only fedrl does; set "
            "network.dropout or network.deadline",
            code="staleness-not-used",
        )
    return NetworkEngine(inner, network, request)
