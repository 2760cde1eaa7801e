"""The engines: how a run gets its clients. An engine's module is imported when the engine is used.

An engine knows the data's schema and its clients before a run directory exists, and makes the run's `Federation`
afterwards. To add one: a function from `Request` to `Engine`, and an entry point in the group `atoll.engines`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from atoll.core.messages import Schema
from atoll.federation.base import Federation
from atoll.registry import find

if TYPE_CHECKING:
    from atoll.config import EngineSettings
    from atoll.data import DataSettings, Federated


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
    found: Callable[[Request], Engine] = find("engines", name)
    return found
