"""The engines: how a run gets its clients. An engine's module is imported when the engine is used.

To add one: a function from `Request` to `Engine`, and an entry point in the group `atoll.engines`. The function finds
out what must be known of the clients' data; processes are started by `Engine.transport`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.core.messages import ClientInfo, Schema
from atoll.federation.transport import Transport
from atoll.preparation.value import Preparation
from atoll.registry import find

if TYPE_CHECKING:
    from atoll.config import EngineSettings
    from atoll.data import DataSettings, Federated
    from atoll.privacy.settings import PrivacySettings


@dataclass(frozen=True)
class Request:
    """What a run asks of its engine."""

    engine: EngineSettings
    data: DataSettings
    seed: int
    method: str
    module: str  # where the method's jobs are
    centralised: bool = False  # the method wants all data in one place
    virtual: bool = False  # the clients are to be on the virtual network: an engine with a real one refuses
    given: Federated | None = None  # data in memory, in place of the data table
    data_dir: Path | None = None
    resumed: Path | None = None  # the directory of a run that is resumed
    privacy: PrivacySettings | None = None
    run: str = ""  # the name of a run that begins


@dataclass(frozen=True)
class Engine:
    """Clients that can be reached, what is known of their data, and what carries tasks to them."""

    preparation: Preparation  # of raw rows, for models that serve all clients
    clients: Sequence[ClientInfo]
    data: DataSettings  # with everything decided that was left to the data
    about: dict[str, Any]  # for the manifest: digest, clients and rows of the data. A resumed run must find the same
    transport: Callable[[str, Path], Transport]  # for the run of this name, which writes to this directory
    benchmark: Sequence[ClientInfo] = ()  # holders of an official test set
    held_out: Sequence[ClientInfo] = ()  # clients whose rows only test the result
    deadline: float | None = None  # real seconds that each wait for replies lasts, where the settings have none
    journal: bool = False  # whether outcomes are journalled, because repeated work could give other replies
    given: bool = False  # the data was given in memory, already prepared
    real: bool = False  # clients are real sites, which draw their own noise under `[privacy]`
    notes: Sequence[str] = ()  # lines about the clients for the user, before the first round
    own_preparation: Callable[[str], Preparation] | None = None  # of a client, for its own model, if it is known here

    @property
    def schema(self) -> Schema:
        return self.preparation.row_schema


def find_engine(name: str) -> Callable[[Request], Any]:
    """The function that opens an engine, or the `RemoteLoop` that `atoll.run.launch` describes."""
    found: Callable[[Request], Any] = find("engines", name)
    return found
