"""Real sites under `[privacy]`: their own noise, their own account and limit, and no reply twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

from atoll.config import Experiment
from atoll.core import wire
from atoll.deploy.flower.engine import on_grid
from atoll.deploy.flower.frames import content, frame_of
from atoll.errors import Paused, SiteError
from atoll.run import launch
from atoll.run.reader import Run
from deploy.flower.test_sites import Killed, Mortal
from deploy.flower.thread_grid import ThreadGrid
from deploy.flower.three_sites import ThreeSites
from refusals import refused

PRIVACY = {"epsilon": 20.0, "clip": 1.0, "noise": 2.0, "count_noise": 5.0}
DATA = {"scale": "none", "split": (0.7, 0.3, 0.0)}


@pytest.fixture
def sites(tmp_path: Path) -> ThreeSites:
    return ThreeSites(tmp_path / "sites")


def private(sites: ThreeSites, engine: str = "flower", **changes: Any) -> Experiment:
    from atoll.privacy.settings import PrivacySettings

    options: dict[str, Any] = {"rounds": 2, "hidden": [4], "batch": 10, "data": {**DATA, **changes.pop("data", {})}}
    experiment = sites.experiment("fedavg", engine, **options)
    return experiment.model_copy(update={"privacy": PrivacySettings(**{**PRIVACY, **changes})})


def lines(sites: ThreeSites, name: str) -> list[dict[str, Any]]:
    path = sites.root / "apart" / name / "work" / "privacy.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def limit(sites: ThreeSites, name: str, text: str) -> None:
    path = sites.root / "apart" / name / "site.toml"
    path.write_text(path.read_text() + text + "\n")


def weights(run: Run) -> list[str]:
    return [run.load_model(one["id"]).weights.whole_digest() for one in run.result["candidates"]]


def works(path: Path, client: str) -> Counter[str]:
    """What the server has charged to a client."""
    found = [json.loads(line) for line in (path / "privacy.jsonl").read_text().splitlines()]
    return Counter(line["work"] for line in found if line["client"] == client)


def test_a_run(tmp_path: Path, sites: ThreeSites) -> None:
    runs = [launch.start(private(sites), tmp_path / name, open_engine=on_grid(sites.grid())) for name in ("a", "b")]
    assert weights(runs[0]) != weights(runs[1])  # of one seed: the noise is not the seed's
    spent = runs[0].result["privacy"]
    assert all(0 < own["epsilon"] <= 20 for own in spent["clients"].values())
    assert not any("seed" in line for line in spent["not_covered"])
    assert runs[0].manifest["notes"][0].startswith("privacy: 2 trainings")
    for name in sites.names:
        own = [line for line in lines(sites, name) if "releases" in line]
        charged = Counter(line["work"] for line in own if line["run"] == runs[0].manifest["run"])
        assert charged == works(tmp_path / "a", name)  # both have computed the same
        assert [line["order"] for line in lines(sites, name) if "releases" not in line] == [
            line["order"] for line in own
        ]
    # The digest that left is keyed: it is another one without privacy.
    plain = private(sites).model_copy(update={"privacy": None})
    open_run = launch.start(plain, tmp_path / "plain", open_engine=on_grid(sites.grid()))
    assert open_run.manifest["data"]["digest"] != runs[0].manifest["data"]["digest"]
    assert runs[0].manifest["data"]["digest"] == runs[1].manifest["data"]["digest"]


def test_a_killed_server_spends_nothing_twice(tmp_path: Path, sites: ThreeSites) -> None:
    grid, path, kills = sites.grid(), tmp_path / "run", 0
    while True:
        mortal = Mortal(grid, tasks=4)
        try:
            if (path / "config.toml").exists():
                launch.resume(path, open_engine=on_grid(mortal))
            else:
                launch.start(private(sites), path, open_engine=on_grid(mortal))
            break
        except Killed:
            kills += 1
    assert kills >= 2
    for name in sites.names:
        own = Counter(line["work"] for line in lines(sites, name) if "releases" in line)
        assert own == works(path, name)


def test_labels_have_noise_and_are_drawn_once(tmp_path: Path, sites: ThreeSites) -> None:
    for name in sites.names:
        path = sites.root / "apart" / name / "site.toml"
        path.write_text(path.read_text().replace("labels = false", "labels = true"))
    experiment = private(sites, data={"share_labels": True})
    runs = [launch.start(experiment, tmp_path / name, open_engine=on_grid(sites.grid())) for name in ("a", "b")]
    shared = [{name: own["labels"] for name, own in run.manifest["clients"].items()} for run in runs]
    assert shared[0] == shared[1]
    assert any(sum(labels) != runs[0].manifest["clients"][name]["train"] for name, labels in shared[0].items())
    assert [line["labels"] for line in lines(sites, "north") if "labels" in line] == [shared[0]["north"]]


def test_the_limit_of_a_site_holds_whatever_the_server_plans(tmp_path: Path, sites: ThreeSites) -> None:
    for name in sites.names:
        limit(sites, name, "epsilon = 2.0")
    with refused(Paused, "round-failed", "limits.epsilon = 2 at limits.delta = 1e-05"):
        launch.start(private(sites), tmp_path / "run", open_engine=on_grid(sites.grid()))


def opening_refused(sites: ThreeSites, path: Path, experiment: Experiment, *named: str, grid: Any = None) -> None:
    with refused(SiteError, "too-few-sites", *named):
        launch.start(experiment, path, open_engine=on_grid(grid or sites.grid()))
    assert not path.exists()
    assert not any((sites.root / "apart" / name / "work" / "privacy.jsonl").exists() for name in sites.names)


def test_a_site_with_a_limit_takes_no_part_without_privacy(tmp_path: Path, sites: ThreeSites) -> None:
    limit(sites, "west", "epsilon = 2.0")
    plain = private(sites).model_copy(update={"privacy": None})
    opening_refused(sites, tmp_path / "run", plain, "site 'west'", "limits.epsilon = 2")


def test_scaling_is_refused_before_anything_leaves(tmp_path: Path, sites: ThreeSites) -> None:
    opening_refused(
        sites, tmp_path / "run", private(sites, data={"scale": "federated"}), "'federated'", "data.scale = 'none'"
    )


def test_a_site_of_another_version_is_refused_before_the_first_round(tmp_path: Path, sites: ThreeSites) -> None:
    grid = ThreadGrid()

    def older(message: Message) -> Message:
        answer = frame_of(sites.handler("west")(message))
        assert answer is not None
        found = {key: value for key, value in wire.decode(answer).items() if key != "private"}
        return Message(content(wire.encode(found)), reply_to=message)

    for name in ("north", "south"):
        grid.connect(sites.handler(name))
    grid.connect(older)
    opening_refused(sites, tmp_path / "run", private(sites), "site 'west'", "atoll[privacy]", grid=grid)
