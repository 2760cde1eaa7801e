"""The Flower engine outside of Flower's server program: it refuses, or the loop runs elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.config import Experiment, resolve
from atoll.data.settings import SITES
from atoll.deploy.flower.engine import on_grid
from atoll.errors import ConfigError
from atoll.federation.engines import Request
from atoll.run import launch
from atoll.run.reader import Run
from atoll.store import RunDirectory
from atoll.testing import made_table
from refusals import refused

DATA = made_table(clients=2)


def experiment(**tables: Any) -> Experiment:
    flower = {"name": "flower", "federation": "nowhere"}
    own = {"method": "fedavg", "data": {"name": SITES}, "engine": flower, "fedavg": {"rounds": 2, "hidden": [4]}}
    return resolve({**own, **tables})


class NoGrid:
    """Fails when it is used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"grid.{name} was used")


@pytest.mark.parametrize("open_engine", [None, on_grid(NoGrid())])  # type: ignore[arg-type]
def test_a_virtual_network_on_sites_is_refused_before_anything_starts(tmp_path: Path, open_engine: Any) -> None:
    with refused(ConfigError, "real-network-engine", "simulation"):
        launch.start(experiment(simulation={"dropout": 0.1}), tmp_path / "run", open_engine=open_engine)
    assert list(tmp_path.iterdir()) == []


def test_a_federation_must_be_named(tmp_path: Path) -> None:
    with refused(ConfigError, "federation-not-named", "--federation"):
        launch.start(experiment(engine={"name": "flower"}), tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


class Elsewhere:
    """A remote loop that runs its experiments on the local engine."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, request: Request) -> Elsewhere:
        return self

    def start(self, wanted: Experiment, out: Path, watcher: Any, stop: Any) -> None:
        self.asked.append("start")
        local = {"method": "fedavg", "data": {"name": "in-memory"}, "fedavg": {"rounds": 2, "hidden": [4]}}
        launch.start(resolve(local), out, data=DATA, watcher=watcher, stop=stop)

    def resume(self, out: Path, rounds: int | None, accept_changes: bool, watcher: Any, stop: Any) -> None:
        self.asked.append("resume")
        RunDirectory.reopen(out).close()  # it is free for another process
        launch.resume(out, rounds=rounds, data=DATA, watcher=watcher, stop=stop)


def test_a_run_whose_loop_runs_elsewhere_is_followed(tmp_path: Path) -> None:
    elsewhere = Elsewhere()
    first = launch.start(experiment(), tmp_path / "run", open_engine=elsewhere)
    assert isinstance(first, Run) and len(first.rounds) == 2
    longer = launch.resume(tmp_path / "run", rounds=3, data=DATA, open_engine=elsewhere)
    assert len(longer.rounds) == 3 and elsewhere.asked == ["start", "resume"]
