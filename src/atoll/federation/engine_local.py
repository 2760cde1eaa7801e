"""The engine of this machine: all data is here, and so are the clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atoll.data.loading import settle
from atoll.federation.base import Federation
from atoll.federation.engines import Engine, Request


class LocalEngine:
    """Clients whose data is in one place. An engine that spreads them over machines derives from this."""

    def __init__(self, request: Request) -> None:
        self.request = request
        if request.given is not None:
            self.federated, self.data = request.given, request.data
        else:
            self.federated, self.data = settle(request.data, request.seed, request.data_dir)
        if request.pooled:
            self.federated = self.federated.pooled()
        self.schema = self.federated.schema
        self.clients = len(self.federated.names)

    def about(self) -> dict[str, Any]:
        return {"digest": self.federated.digest(), "clients": self.clients, "rows": self.federated.rows}

    def federation(self, run: str, directory: Path) -> Federation:
        from atoll.federation.local import LocalFederation

        engine, module = self.request.engine, self.request.module
        # A worker process cannot import what was defined in a notebook.
        workers = 0 if module == "__main__" else engine.workers
        seed = self.request.seed
        return LocalFederation(self.federated, seed, workers, engine.device, engine.deadline, preload=[module])


def open_engine(request: Request) -> Engine:
    return LocalEngine(request)
