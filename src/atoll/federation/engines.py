"""The engines: how a run gets its clients. A table, not a registry: an engine's module is loaded when it is asked for.

An engine knows the data's schema and its clients before a run directory exists, and makes the run's `Federation`
afterwards. To add one: a function from `Request` to `Engine`, a line in the table, its name in `config.EngineSettings`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from atoll.core.messages import Schema
from atoll.errors import ConfigError, nearest
from atoll.federation.base import Federation

if TYPE_CHECKING:
    from atoll.config import EngineSettings
    from atoll.data import DataSettings, Federated

ENGINES = {
    "local": "atoll.federation.local:open_engine",
    "flower": "atoll.deploy.flower.engine:open_engine",
    "ray": "atoll.federation.ray:open_engine",
}


@dataclass(frozen=True)
class Request:
    """What a run asks of its engine."""

    engine: EngineSettings
    data: DataSettings
    seed: int
    method: str
    module: str  # where the method's jobs are
    centralised: bool = False  # the method wants all data in one place
    given: Federated | None = None  # data in memory, in place of the data table
    data_dir: Path | None = None
    resumed: Path | None = None  # the directory of a run that goes on
    grid: Any = None  # Flower's, inside of its ServerApp


class Engine(Protocol):
    """Clients that can be reached, and what is known of their data."""

    schema: Schema
    clients: int
    data: DataSettings  # with everything decided that was left to the data

    def about(self) -> dict[str, Any]:
        """For the manifest: digest, clients and rows of the data. A resumed run must find the same."""

    def federation(self, run: str, directory: Path) -> Federation:
        """The handle of the run of this name, which writes to this directory."""


def find_engine(name: str) -> Callable[[Request], Engine]:
    """The function that opens an engine."""
    if name not in ENGINES:
        raise ConfigError(f"engine.name = {name!r}: unknown; {nearest(name, ENGINES)}", code="unknown-engine")
    module, _, attribute = ENGINES[name].partition(":")
    found: Callable[[Request], Engine] = getattr(importlib.import_module(module), attribute)
    return found
