"""Sites that keep their data: the same result as the same files in one folder, kills, and clear refusals."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Message

from atoll.deploy.flower import engine as flower_engine
from atoll.deploy.flower.engine import on_grid
from atoll.deploy.flower.frames import frame_of
from atoll.deploy.flower.messages import PREPARE, TASK
from atoll.errors import ConfigError, DataError, Paused, SiteError
from atoll.run import launch
from atoll.run.reader import Run
from deploy.flower.thread_grid import ThreadGrid
from deploy.flower.three_sites import NAMES, ThreeSites, write_images, write_rows
from outcomes import outcome
from refusals import refused

METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {"rounds": 2, "hidden": [8]},
    "nevofed": {"rounds": 2, "population": 12},
    "realtime": {"rounds": 4},
    "moefl": {"rounds": 6, "population": 4},
}
IMAGE_METHODS: dict[str, dict[str, Any]] = {
    "decnas": {
        "rounds": 4,
        "model": "convnet",
        "widths": [2, 2, 4, 4, 4, 4],
        "start_rounds": 1,
        "tune_rounds": [2],
        "groups": 2,
        "balance": 9.0,  # any sizes: the rows per class decide the groups
        "resources": {"macs": 0.8},
        "data": {"share_labels": True},
    },
    "fedrl": {"rounds": 3, "warmup": 1, "retrain": 1, "channels": 2, "cells": 1, "batch": 8},
    "realtime": {"rounds": 2, "population": 3, "channels": [4, 8], "batch": 8},
}


def on_sites(sites: ThreeSites, method: str, path: Path, grid: Any, **settings: Any) -> Run:
    """A whole run of these sites."""
    return launch.start(sites.experiment(method, "flower", **settings), path, open_engine=on_grid(grid))


@pytest.fixture
def sites(tmp_path: Path) -> ThreeSites:
    return ThreeSites(tmp_path / "sites")


@pytest.mark.parametrize("method", METHODS)
def test_the_same_result_as_in_one_place(tmp_path: Path, sites: ThreeSites, method: str) -> None:
    here = launch.start(sites.experiment(method, "local", **METHODS[method]), tmp_path / "here")
    there = on_sites(sites, method, tmp_path / "there", sites.grid(), **METHODS[method])
    assert outcome(there) == outcome(here)


@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_sites_with_images(tmp_path: Path, method: str) -> None:
    sites = ThreeSites(tmp_path / "sites", images=True)
    settings = IMAGE_METHODS[method]
    here = launch.start(sites.experiment(method, "local", **settings), tmp_path / "here")
    there = on_sites(sites, method, tmp_path / "there", sites.grid(), **settings)
    assert outcome(there) == outcome(here)


def test_other_image_sizes_are_refused_on_both_sides(tmp_path: Path) -> None:
    sites = ThreeSites(tmp_path / "sites", images=True)
    write_images(sites.root / "apart" / "west" / "data" / "anything.npz", 2, side=9)
    text = opening_refused(sites, tmp_path)
    named = ("(9, 9)", "site 'north'", "(8, 8)")
    assert "site 'west'" in text and all(value in text for value in named)
    assert all(value in notice(sites, "west") for value in named)


@pytest.mark.parametrize(
    "data",
    [
        {"scale": "client", "logarithm": True},
        {"scale": "none", "blocks": "contiguous", "split": (0.5, 0.25, 0.25)},
        {"label": "age_group", "categories": "onehot", "missing": "mean"},
        {"label": "age_group", "categories": "code", "missing": "median"},
    ],
)
def test_every_way_to_prepare_data_gives_the_same(tmp_path: Path, data: dict[str, Any]) -> None:
    rows = {
        "north": "age_group,colour,dose 1,red,0.5 2,blue, 1,red,0.25 2,,1.5 1,green,2 2,red,NA 1,blue,3 2,red,1",
        "south": "dose,age_group,colour 0.5,1,red 7,3,blue 1,1,red ,3,white 1,1,green 2,3,red 1,1,red 4,3,blue",
    }
    sites = ThreeSites(tmp_path / "sites", names=("north", "south"))
    if data.get("label"):
        for name, text in rows.items():
            for path in (
                sites.root / "together" / f"{name}.csv",
                sites.root / "apart" / name / "data" / "anything.csv",
            ):
                path.write_text("\n".join(text.split()) + "\n")
    options = {"rounds": 1, "hidden": [4], "batch": 4, "data": data}
    here = launch.start(sites.experiment("fedavg", "local", **options), tmp_path / "here")
    there = on_sites(sites, "fedavg", tmp_path / "there", sites.grid(), **options)
    assert outcome(there) == outcome(here)


# -- killed -----------------------------------------------------------------------------------------------------------


class Killed(BaseException):
    """Stands for SIGKILL: nothing of Atoll catches it, and nothing is written after it."""


class Mortal:
    """A grid that kills the server's program when so many tasks have been sent."""

    def __init__(self, grid: ThreadGrid, tasks: int) -> None:
        self._grid, self._left = grid, tasks

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        found = list(messages)
        self._left -= sum(message.metadata.message_type == "train.task" for message in found)
        if self._left < 0:
            raise Killed
        return self._grid.push_messages(found)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def tasks_sent(grid: ThreadGrid) -> int:
    return sum(message.metadata.message_type == "train.task" for message in grid.sent)


@pytest.mark.parametrize(("method", "tasks", "under_way"), [("fedavg", 7, 6), ("nevofed", 4, 3)])
def test_a_killed_server_goes_on_to_the_same_result(
    tmp_path: Path, sites: ThreeSites, method: str, tasks: int, under_way: int
) -> None:
    """Killed in the middle of every second exchange, each time resumed: nothing that was accepted is asked again."""
    here = outcome(launch.start(sites.experiment(method, "local", **METHODS[method]), tmp_path / "here"))
    whole = sites.grid()
    on_sites(sites, method, tmp_path / "whole", whole, **METHODS[method])
    grid, path, sittings = sites.grid(), tmp_path / "there", 0
    while True:
        mortal = Mortal(grid, tasks)
        try:
            if (path / "config.toml").exists():
                there = launch.resume(path, open_engine=on_grid(mortal))
            else:
                there = on_sites(sites, method, path, mortal, **METHODS[method])
            break
        except Killed:
            sittings += 1
    assert sittings >= 2
    assert outcome(there) == here
    # Three sites have two tasks each at a kill, where each may have two; every other one was sent once.
    assert tasks_sent(whole) <= tasks_sent(grid) <= tasks_sent(whole) + under_way * sittings


class _Broken:
    """A grid whose link forgets, once, what is being pushed to it: before a run, or in it."""

    def __init__(self, grid: ThreadGrid, kind: str, after: int) -> None:
        self._grid, self._kind, self._left = grid, kind, after

    def push_messages(self, messages: list[Message]) -> Iterable[str]:
        self._left -= messages[0].metadata.message_type == self._kind
        if self._left < 0:
            raise ConnectionError("the push session may have expired")
        return self._grid.push_messages(messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def test_a_link_that_fails_pauses_a_run(tmp_path: Path, sites: ThreeSites) -> None:
    experiment = sites.experiment("fedavg", "flower", rounds=2, hidden=[8])
    with refused(Paused, "link-failed", "ConnectionError", "the push session may have expired"):
        launch.start(experiment, tmp_path / "there", open_engine=on_grid(_Broken(sites.grid(), TASK, 10)))
    there = launch.resume(tmp_path / "there", open_engine=on_grid(sites.grid()))
    here = launch.start(sites.experiment("fedavg", "local", rounds=2, hidden=[8]), tmp_path / "here")
    assert outcome(there) == outcome(here)


def test_a_link_that_fails_before_a_run_leaves_nothing(tmp_path: Path, sites: ThreeSites) -> None:
    experiment = sites.experiment("fedavg", "flower", rounds=1, hidden=[8])
    with refused(SiteError, "link-failed-at-start", "ConnectionError"):
        launch.start(experiment, tmp_path / "there", open_engine=on_grid(_Broken(sites.grid(), PREPARE, 1)))
    assert not (tmp_path / "there").exists()


def test_a_finished_run_can_go_further(tmp_path: Path, sites: ThreeSites) -> None:
    """What was asked for the results is not mistaken for what the next round asks."""
    path = tmp_path / "there"
    on_sites(sites, "fedavg", path, sites.grid(), rounds=1, hidden=[8])
    longer = launch.resume(path, rounds=2, open_engine=on_grid(sites.grid()))
    here = launch.start(sites.experiment("fedavg", "local", rounds=1, hidden=[8]), tmp_path / "here")
    assert outcome(longer) == outcome(launch.resume(here.path, rounds=2))


# -- refused ----------------------------------------------------------------------------------------------------------


def opening_refused(
    sites: ThreeSites, tmp_path: Path, grid: ThreadGrid | None = None, wait: float = 60.0, **options: Any
) -> str:
    """Why the run does not start; nothing of it is written."""
    experiment = sites.experiment("fedavg", "flower", rounds=1, hidden=[4], **options)
    experiment = experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"wait": wait})})
    with refused(SiteError, "too-few-sites") as caught:
        launch.start(experiment, tmp_path / "there", open_engine=on_grid(grid or sites.grid()))
    assert not (tmp_path / "there").exists()
    return str(caught.value)


def notice(sites: ThreeSites, name: str) -> str:
    path = sites.root / "apart" / name / "work" / "notice.txt"
    for _ in range(1200):
        if path.exists() and path.read_text():
            break
        time.sleep(0.05)
    return path.read_text()


def own_file(sites: ThreeSites, name: str) -> Path:
    return sites.root / "apart" / name / "data" / "anything.csv"


def test_other_columns_are_refused_on_both_sides(tmp_path: Path, sites: ThreeSites) -> None:
    own_file(sites, "west").write_text(own_file(sites, "west").read_text().replace("weight", "mass"))
    text = opening_refused(sites, tmp_path)
    assert all(value in text for value in ("'west'", "'weight'", "'north'", "engine.sites=2"))
    assert "'weight'" in notice(sites, "west")


def test_a_run_can_begin_without_a_site_that_does_not_fit(tmp_path: Path, sites: ThreeSites) -> None:
    own_file(sites, "west").write_text("x,outcome\n1,well\n2,ill\n3,well\n4,ill\n")
    experiment = sites.experiment("fedavg", "flower", rounds=1, hidden=[4])
    experiment = experiment.model_copy(update={"engine": experiment.engine.model_copy(update={"sites": 2})})
    there = launch.start(experiment, tmp_path / "there", open_engine=on_grid(sites.grid()))
    assert set(there.result["candidates"][0]["clients"]) == {"north", "south"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age,weight,dose,outcome\n1,2,3,well\n", "has 1 row"),
        ("age,weight,dose,result\n1,2,3,well\n4,5,6,ill\n", "has no label column 'outcome'"),
        ("age,weight,dose,outcome\n1,2,x,well\n4,5,6,ill\n", "'x' is not a finite number"),
        ("age,weight,dose,outcome\n1,2,,well\n4,5,6,ill\n", "the value is missing"),
        ("age,weight,dose,outcome\n1,2,3,0\n4,5,6,1\n", "its labels are numbers"),
    ],
)
def test_a_site_says_what_is_wrong_with_its_data(tmp_path: Path, sites: ThreeSites, text: str, words: str) -> None:
    own_file(sites, "south").write_text(text)
    assert words in opening_refused(sites, tmp_path)
    assert words in notice(sites, "south")


def test_a_class_that_was_not_declared_is_refused(tmp_path: Path, sites: ThreeSites) -> None:
    own_file(sites, "west").write_text(own_file(sites, "west").read_text().replace("unclear", "gone"))
    text = opening_refused(sites, tmp_path, data={"classes": ("well", "ill", "unclear")})
    assert "2 of 3 sites can participate (site 'west': class 'gone' is not among data.classes" in text


def test_a_site_that_is_not_there(tmp_path: Path, sites: ThreeSites) -> None:
    grid = ThreadGrid()
    for name in NAMES[:2]:
        grid.connect(sites.handler(name))
    assert "2 of 3 sites can participate (site 'west': it is not connected)" in opening_refused(
        sites, tmp_path, grid, wait=3.0
    )


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"rounds": 1, "hidden": [8]}),
        ("fedrl", {"rounds": 2, "warmup": 1, "retrain": 0, "channels": 2, "cells": 1}),
    ],
)
def test_a_site_silent_for_ever_never_blocks_a_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, settings: dict[str, Any]
) -> None:
    """Nobody has set a deadline: the engine has one of its own."""
    monkeypatch.setattr(flower_engine, "SILENCE", 2.0)
    sites, grid, end = ThreeSites(tmp_path / "sites", images=True), ThreadGrid(), threading.Event()
    for name in NAMES[:2]:
        grid.connect(sites.handler(name))

    def hang(message: Message) -> Message:
        if message.metadata.message_type == TASK:
            end.wait()
        return sites.handler("west")(message)

    grid.connect(hang)
    try:
        run = on_sites(sites, method, tmp_path / "there", grid, **settings)
    finally:
        end.set()
    assert run.finished and len(run.rounds) == settings["rounds"]


def test_two_nodes_under_one_name(tmp_path: Path, sites: ThreeSites) -> None:
    grid = sites.grid()
    grid.connect(sites.handler("south"))
    experiment = sites.experiment("fedavg", "flower", rounds=1, hidden=[4])
    with refused(SiteError, "too-few-sites", "site 'south'"):
        launch.start(experiment, tmp_path / "there", open_engine=on_grid(_Patient(grid)))
    assert "two nodes" in notice(sites, "south")


class _Patient:
    """A grid whose nodes are all heard before anybody is counted."""

    def __init__(self, grid: ThreadGrid) -> None:
        self._grid = grid

    def pull_messages(self, identifiers: Iterable[str]) -> Iterable[Message]:
        end = time.monotonic() + 60
        while not self._grid.all_answered() and time.monotonic() < end:
            time.sleep(0.01)
        return self._grid.pull_messages(identifiers)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._grid, name)


def test_a_node_that_gives_another_name_than_it_is_registered_by(tmp_path: Path, sites: ThreeSites) -> None:
    grid = ThreadGrid()
    for name, registered in (("north", "north"), ("south", "south"), ("south", "west")):
        grid.connect(sites.handler(name), name=registered)
    text = opening_refused(sites, tmp_path, grid)
    assert "site 'west'" in text and "'south'" in text


def test_a_method_that_a_site_forbids(tmp_path: Path, sites: ThreeSites) -> None:
    path = sites.root / "apart" / "south" / "site.toml"
    path.write_text(path.read_text().replace('# methods = ["fedavg", "realtime"]', 'methods = ["nevofed"]'))
    text = opening_refused(sites, tmp_path)
    assert "'south'" in text and "'fedavg'" in text


def test_data_that_changes_during_a_run_is_refused(tmp_path: Path, sites: ThreeSites) -> None:
    """The run's own copy is used as long as it is there; without it, the files must be what they were."""
    path = tmp_path / "there"
    on_sites(sites, "fedavg", path, sites.grid(), rounds=1, hidden=[8])
    write_rows(own_file(sites, "south"), 5)
    launch.resume(path, rounds=2, open_engine=on_grid(sites.grid()))
    shutil.rmtree(sites.root / "apart" / "south" / "work" / "runs")
    longer = launch.resume(path, rounds=3, open_engine=on_grid(sites.grid()))
    assert longer.rounds[1]["metrics"]["clients"] == 3 and longer.rounds[2]["metrics"]["clients"] == 2


@pytest.mark.parametrize(
    ("data", "named"),
    [({"clients": 2}, "data.clients"), ({"partition": "iid"}, "data.partition = 'iid'"), ({"rows": 9}, "data.rows")],
)
def test_settings_that_deal_data_out_are_refused(sites: ThreeSites, tmp_path: Path, data: Any, named: str) -> None:
    with refused(ConfigError, "data-held-by-sites", named):
        on_sites(sites, "fedavg", tmp_path / "there", sites.grid(), data=data)


def test_a_method_that_pools_all_data_is_refused(sites: ThreeSites, tmp_path: Path) -> None:
    with refused(ConfigError, "centralised-data-needed", "central"):
        on_sites(sites, "central", tmp_path / "there", sites.grid())


def test_no_row_leaves_a_site(tmp_path: Path, sites: ThreeSites) -> None:
    """What the nodes answered, searched for the bytes of any of their values."""
    grid, answers = sites.grid(), []

    def tamper(reply: Message) -> list[Message]:
        answers.append(frame_of(reply) or b"")
        return [reply]

    grid.tamper = tamper
    on_sites(sites, "fedavg", tmp_path / "there", grid, rounds=1, hidden=[8])
    said = b"".join(answers)
    assert len(answers) > 9 and b"well" in said
    for name in NAMES:
        for line in own_file(sites, name).read_text().splitlines()[1:]:
            assert not any(word.encode() in said for word in line.split(",") if word[0].isdigit())


@pytest.mark.parametrize("scale", ["federated", "client"])
def test_a_model_of_sites_answers_raw_rows(tmp_path: Path, sites: ThreeSites, scale: str) -> None:
    """As one that was trained in one place; where sites scale by their own rows, each holds what a model needs."""
    settings = METHODS["fedavg"]
    data = {"scale": scale, "missing": "mean"}
    here = launch.start(sites.experiment("fedavg", "local", data=data, **settings), tmp_path / "here")
    there = on_sites(sites, "fedavg", tmp_path / "there", sites.grid(), data=data, **settings)
    assert there.load_model("high").preparation == here.load_model("high").preparation
    rows = [{"age": 61, "weight": 70, "dose": 0.1}, {"dose": 0.2, "age": 70, "weight": None}]
    statistics = None
    if scale == "client":
        with refused(DataError, "statistics-missing"):
            there.predict(rows)
        (statistics,) = (sites.root / "apart" / "south" / "work").rglob("preparation.json")
    found = there.predict(rows, statistics=statistics)
    assert np.array_equal(found.values, here.predict(rows, statistics=statistics).values)
