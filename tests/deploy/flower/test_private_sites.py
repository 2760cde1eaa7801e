"""Real sites under `[privacy]`: their own noise, their own account and limit, and no reply twice."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Error, Message

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
CLASSES = ("ill", "unclear", "well")
DATA = {"scale": "none", "split": (0.7, 0.3, 0.0), "classes": CLASSES}
OWN_DATA = f'[data]\nlabel = "outcome"\nclasses = {list(CLASSES)}\n'


@pytest.fixture
def sites(tmp_path: Path) -> ThreeSites:
    return ThreeSites(tmp_path / "sites")


NETWORK = {"space": "fixed", "model": "mlp", "hidden": [4]}
FEDAVG = {"rounds": 2, "hidden": [4], "batch": 10}


def private(
    sites: ThreeSites, engine: str = "flower", method: str = "fedavg", settings: Any = None, **changes: Any
) -> Experiment:
    from atoll.privacy.settings import PrivacySettings

    options: dict[str, Any] = {**(settings or FEDAVG), "data": {**DATA, **changes.pop("data", {})}}
    options |= {"rounds": changes.pop("rounds")} if "rounds" in changes else {}
    experiment = sites.experiment(method, engine, **options)
    return experiment.model_copy(update={"privacy": PrivacySettings(**{**PRIVACY, **changes})})


def lines(sites: ThreeSites, name: str) -> list[dict[str, Any]]:
    path = sites.root / "apart" / name / "work" / "privacy.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def limit(sites: ThreeSites, name: str, text: str) -> None:
    path = sites.root / "apart" / name / "site.toml"
    path.write_text(path.read_text().replace("# epsilon = 8.0", text + "  #") + OWN_DATA)


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
    assert not any("knows the seed" in line for line in spent["not_covered"])
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
    assert [line["numbers"] for line in lines(sites, "north") if "once" in line] == [shared[0]["north"]]


def test_the_limit_of_a_site_holds_whatever_the_server_plans(tmp_path: Path, sites: ThreeSites) -> None:
    for name in sites.names:
        limit(sites, name, "epsilon = 2.0")
    with refused(Paused, "round-failed", "limits.epsilon = 2 at limits.delta = 1e-05"):
        launch.start(private(sites), tmp_path / "run", open_engine=on_grid(sites.grid()))


def opening_refused(sites: ThreeSites, path: Path, experiment: Experiment, *named: str, grid: Any = None) -> None:
    with refused(SiteError, "too-few-sites", *named):
        launch.start(experiment, path, open_engine=on_grid(grid or sites.grid()))
    assert not path.exists()
    accounts = [sites.root / "apart" / name / "work" / "privacy.jsonl" for name in sites.names]
    assert not any(one.exists() and one.read_bytes() for one in accounts)


def test_a_site_with_a_limit_takes_no_part_without_privacy(tmp_path: Path, sites: ThreeSites) -> None:
    limit(sites, "west", "epsilon = 2.0")
    plain = private(sites).model_copy(update={"privacy": None})
    opening_refused(sites, tmp_path / "run", plain, "site 'west'", "limits.epsilon = 2")


def test_scaling_without_bounds_is_refused_before_anything_leaves(tmp_path: Path, sites: ThreeSites) -> None:
    named = ("'federated' needs bounds of column", "data.scale = 'none'")
    opening_refused(sites, tmp_path / "run", private(sites, data={"scale": "federated"}), *named)


BOUNDS = {"age": [0.0, 120.0], "weight": [0.0, 200.0], "dose": [0.0, 1.0]}


def test_scaling_by_noisy_sums(tmp_path: Path, sites: ThreeSites) -> None:
    """They leave once, with noise that no one else knows, and are charged on both sides. Sites have limits."""
    for name in sites.names:
        limit(sites, name, "epsilon = 20.0")
    experiment = private(sites, data={"scale": "federated"}, bounds=BOUNDS, moment_noise=4.0)
    runs = [launch.start(experiment, tmp_path / name, open_engine=on_grid(sites.grid())) for name in ("a", "b")]
    found = [json.loads((run.path / "preparation.json").read_text())["statistics"] for run in runs]
    assert found[0] == found[1] and len(found[0]["mean"]) == 3  # the second time the same numbers
    for name in sites.names:
        (once,) = (line for line in lines(sites, name) if "once" in line)
        assert once["once"].startswith("moments ") and once["releases"] == [["train", 4.0, 1.0, 1]]
    charged = [json.loads(line) for line in (tmp_path / "a/privacy.jsonl").read_text().splitlines()]
    assert [line["client"] for line in charged if line["work"] == "moments"] == list(sites.names)


def test_sites_count_their_test_rows(tmp_path: Path, sites: ThreeSites) -> None:
    for name in sites.names:
        limit(sites, name, "epsilon = 20.0")
    experiment = private(sites, data={"split": (0.5, 0.25, 0.25)})
    run = launch.start(experiment, tmp_path / "run", open_engine=on_grid(sites.grid()))
    found = run.candidate("high")
    assert found["test"]["noisy"] and set(found["clients"]) == set(sites.names)
    for name in sites.names:
        (tested,) = (line for line in lines(sites, name) if ["test", 5.0, 1.0, 1] in line.get("releases", []))
        assert tested["releases"] == [["test", 5.0, 1.0, 1]]


def lost_after(grid: ThreadGrid, tasks: int) -> ThreadGrid:
    """A grid that loses replies: of the tasks that arrive after so many, each is done, and no answer is delivered."""
    seen: set[str] = set()

    def tamper(reply: Message) -> list[Message]:
        asked = next(one for one in grid.sent if one.metadata.message_id == reply.metadata.reply_to_message_id)
        if asked.metadata.message_type == "train.task":
            seen.add(asked.metadata.message_id)
        return [reply] if len(seen) <= tasks else [Message(Error(2, "lost on the way"), reply_to=asked)]

    grid.tamper = tamper
    return grid


@pytest.mark.parametrize(("tasks", "code"), [(9, "round-failed"), (14, "results-not-measured")])
def test_a_paused_run_goes_on(tmp_path: Path, sites: ThreeSites, tasks: int, code: str) -> None:
    """Clients have several tasks in a round. Their replies have left the sites, so that only stored ones may be sent
    again. Each attempt of the round was charged, and going on charges none of them again."""
    options = {"rounds": 3, "networks": dict.fromkeys(("one", "two"), NETWORK), "batch": 10}
    experiment = private(sites, "flower", "retrain", options, epsilon=200.0)
    with refused(Paused, code, "lost on the way"):
        launch.start(experiment, tmp_path / "run", open_engine=on_grid(lost_after(sites.grid(), tasks)))
    spent = {name: works(tmp_path / "run", name) for name in sites.names}
    run = launch.resume(tmp_path / "run", open_engine=on_grid(sites.grid()))
    assert run.finished and run.result["rounds"] == 3
    for name in sites.names:
        own = Counter(line["work"] for line in lines(sites, name) if "releases" in line)
        assert own == works(run.path, name)
        assert all(own[work] == times for work, times in spent[name].items()) and max(own.values()) > 1


def test_replies_that_are_not_asked_for_again_are_deleted(
    tmp_path: Path, sites: ThreeSites, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two checkpoints are kept, so at the end those of the last two rounds and of the result."""
    monkeypatch.setattr("atoll.run.loop.CHECKPOINT_SHARE", 0)  # a checkpoint after each round
    run = launch.start(private(sites, rounds=6), tmp_path / "run", open_engine=on_grid(sites.grid()))
    folder = sites.root / "apart" / "north" / "work" / "runs" / run.manifest["run"] / "replies"
    kept, orders = sorted(int(path.stem) for path in folder.glob("*.frame")), answered(sites, "north")
    assert kept == orders[-len(kept) :] and 2 <= len(kept) <= 4 < len(orders)


def answered(sites: ThreeSites, name: str) -> list[int]:
    return [line["order"] for line in lines(sites, name) if "order" in line and "releases" not in line]


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
