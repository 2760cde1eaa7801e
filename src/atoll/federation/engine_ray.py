"""The engine of a Ray cluster: the data is loaded here and dealt out to actors."""

from __future__ import annotations

from pathlib import Path

from atoll.errors import ConfigError
from atoll.federation.base import Federation
from atoll.federation.engine_local import LocalEngine
from atoll.federation.engines import Engine, Request


class RayEngine(LocalEngine):
    """As local, but the clients are played by actors."""

    def federation(self, run: str, directory: Path) -> Federation:
        from atoll.federation.ray import RayFederation

        engine, module = self.request.engine, self.request.module
        if module == "__main__":
            raise ConfigError(
                "engine ray: actors cannot import a method of a notebook; put it in a module, or use local",
                code="method-not-importable",
            )
        return RayFederation(
            self.federated,
            self.request.seed,
            engine.workers,
            engine.device,
            engine.deadline,
            preload=[module],
            address=engine.ray_address,
        )


def open_engine(request: Request) -> Engine:
    return RayEngine(request)
