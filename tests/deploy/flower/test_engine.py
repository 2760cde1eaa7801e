"""What a federation knows of its sites before and after a run, and what it tells its user."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from atoll.deploy.control import status
from atoll.deploy.create import create_federation
from atoll.deploy.flower.engine import from_last_run, kept, on_grid
from atoll.errors import ConfigError
from atoll.report.terminal import NoProgress
from atoll.run import launch
from atoll.run.reader import load
from deploy.flower.three_sites import NAMES, ThreeSites
from deploy.test_commands import done
from refusals import refused


@pytest.fixture
def sites(tmp_path: Path) -> ThreeSites:
    return ThreeSites(tmp_path / "sites")


def test_what_is_known_of_sites_after_a_run_data_that_changed_and_an_estimate(
    tmp_path: Path,
    sites: ThreeSites,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    layout = create_federation(tmp_path / "federation", NAMES, "localhost", 9443)
    experiment = sites.experiment("fedavg", "flower", rounds=1, hidden=[4])
    at = experiment.engine.model_copy(update={"federation": str(layout.folder)})
    experiment = experiment.model_copy(update={"engine": at})
    file = sites.root / "apart" / "south" / "data" / "anything.csv"
    noted: list[str] = []

    class Watching(NoProgress):
        def noted(self, lines: Sequence[str]) -> None:
            noted.extend(lines)

    other = experiment.data.model_copy(update={"split": (0.5, 0.25, 0.25)})
    for number, changes in enumerate(({}, {"data": other}, {"seed": 2})):  # other settings, another seed
        if number == 2:
            file.write_text(file.read_text().replace("well", "ill", 1))
        assert not status(layout).warnings and "is not that of" not in caplog.text and not noted
        experiment = experiment.model_copy(update=changes)
        watching = Watching(Console())
        launch.start(experiment, tmp_path / str(number), watcher=watching, open_engine=on_grid(sites.grid()))
    (server,) = status(layout).warnings
    (site,) = [record.getMessage() for record in caplog.records if "is not that of" in record.getMessage()]
    assert server.startswith("WARNING: site south: the data is not that of the last run, of 20") and noted == [server]
    assert str(file.parent) in site and "restore it" in site and load(tmp_path / "2").manifest["notes"] == noted

    ledger = load(tmp_path / "2").result["ledger"]
    found, _ = launch.estimate(experiment, open_engine=from_last_run)
    assert (found.total.bytes_down, found.total.client_macs) == (ledger["bytes_down"], ledger["client_macs"])
    messages = max(own.messages for own in found.clients.values())
    words = ("run", "fedavg", "--federation", layout.folder, "--rounds", 1, "--estimate", "--bandwidth", 8)
    settings = ("fedavg.hidden=[4]", "data.label='outcome'", "data.split=[0.5,0.25,0.25]")
    said = done(monkeypatch, capsys, *words, *(word for setting in settings for word in ("--set", setting)))
    assert f"on real sites: up to {5 * messages} s more" in said and "at 8 Mbit/s" in said
    shutil.rmtree(tmp_path / "2")
    with refused(ConfigError, "estimate-on-sites", "north, south, west", "--data"):
        launch.estimate(experiment, open_engine=from_last_run)


def test_label_counts_leave_only_where_the_site_allows_it(tmp_path: Path, sites: ThreeSites) -> None:
    path = sites.root / "apart" / "north" / "site.toml"
    path.write_text(path.read_text().replace("labels = false", "labels = true"))
    experiment = sites.experiment("fedavg", "flower", rounds=1, hidden=[4], data={"share_labels": True})
    there = launch.start(experiment, tmp_path / "there", open_engine=on_grid(sites.grid()))
    (note,) = there.manifest["notes"]
    assert note.startswith("south, west: rows per class stay at the site")
    opened = kept(tmp_path / "there")
    assert opened is not None
    assert {info.name: info.labels is not None for info in opened.infos} == {
        "north": True,
        "south": False,
        "west": False,
    }
