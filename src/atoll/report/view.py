"""A run as pages show it: its files read once, its events reduced, its state in a word."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from atoll.config import settings_table
from atoll.run.accounts import client_problems, network_problems
from atoll.run.digest import RunDigest
from atoll.run.following import EventFollower
from atoll.run.metrics import measured_on
from atoll.run.reader import Run
from atoll.store.lock import owner

# What reading files that Atoll has not written can raise, wherever they surprise.
NOT_AS_WRITTEN = (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError)
Entry = Mapping[str, Any]  # of a candidate in result.json
STATES = {
    "running": "running",
    "finished": "finished",
    "stopped": "stopped; it can be resumed",
    "damaged": "damaged",
    "foreign": "not a run of this version of Atoll",
}


@dataclass(frozen=True, eq=False)
class RunView:
    """What is known of a run at one moment."""

    name: str
    path: Path
    manifest: Mapping[str, Any]
    config: Mapping[str, Any]
    digest: RunDigest
    classes: tuple[str, ...] = ()
    result: Mapping[str, Any] | None = None
    state: str = "finished"
    rivals: Mapping[str, RunView] = field(default_factory=dict)  # runs to compare with

    @property
    def method(self) -> str:
        return str(self.manifest["method"])

    @property
    def data(self) -> str:
        return str(self.manifest["source"])

    @property
    def kind(self) -> str:
        """The kind of metrics that its rounds hold."""
        return str(self.manifest["metrics_kind"])

    @property
    def measured_on(self) -> str:
        """The rows that the errors of its rounds are about, in words."""
        return measured_on(self.manifest)

    @property
    def seed(self) -> int:
        return int(self.manifest["seed"])

    @property
    def recommended(self) -> str:
        return str(self.manifest["recommended"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """The method's own."""
        found = self.config.get(settings_table(str(self.config.get("method", self.method))), {})
        return found if isinstance(found, dict) else {}

    @property
    def rounds(self) -> int:
        return self.digest.rounds

    @property
    def planned(self) -> int:
        """The rounds that the run is planned for; 0 if that is not known."""
        if self.result is not None:
            return int(self.result["planned_rounds"])
        return int(self.settings.get("rounds", 0))

    @property
    def clients(self) -> Mapping[str, Mapping[str, Any]]:
        """The accounts of the clients."""
        return self.digest.clients if self.result is None else self.result["clients"]

    @property
    def candidates(self) -> list[Entry]:
        return [] if self.result is None else list(self.result["candidates"])

    @cached_property
    def best(self) -> Entry | None:
        """The recommended network."""
        named = ((entry, (entry["id"], *entry["picks"])) for entry in self.candidates)
        return next((entry for entry, names in named if self.recommended in names), None)

    @cached_property
    def problems(self) -> list[str]:
        """What a reader must be warned of, a sentence each."""
        found = client_problems(self.clients)
        if self.best is not None:
            found += network_problems(self.best, self.recommended, self.classes)
        return found


def view(run: Run, name: str | None = None) -> RunView:
    """The run as it is now. `RunDamaged` if its files cannot be read."""
    follower, digest = EventFollower(run.path), RunDigest()
    while True:
        found = follower.look()
        if found.restart:
            digest = RunDigest()
        for event in found.events:
            digest.add(event)
        if not found.more:
            break
    return view_of(run, digest, name)


def view_of(run: Run, digest: RunDigest, name: str | None = None) -> RunView:
    """The run with events that were read before."""
    result = run.result if run.finished else None
    return RunView(
        name or run.path.name,
        run.path,
        run.manifest,
        run.config,
        digest,
        run.classes if (run.path / "preparation.json").exists() else (),
        result,
        "finished" if result is not None else "running" if owner(run.path) is not None else "stopped",
    )
