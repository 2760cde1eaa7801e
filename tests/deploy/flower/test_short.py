"""A real link and two real nodes on the loopback: the contract in short, and the same results as in one place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import ConfigError
from atoll.rng import stream
from atoll.run import launch
from atoll.run.reader import Run, load
from deploy.flower.real_link import RealLink
from deploy.flower.test_sites import IMAGE_METHODS
from deploy.flower.three_sites import NAMES, ThreeSites
from outcomes import outcome
from refusals import refused

CONTRACT = Path(__file__).parent / "link_contract"
SEARCHES = {"realtime": {"rounds": 2}, "nevofed": {"rounds": 2, "population": 12}}


class Connected:
    """Two sites on a link, and the same two in one place; or three with images."""

    def __init__(self, root: Path, real: RealLink, images: bool = False) -> None:
        self.sites = ThreeSites(root / "sites", names=NAMES if images else NAMES[:2], images=images)
        self.real = real
        for name in self.sites.names:
            real.node(name, self.sites.config(name))

    def allow(self, jobs: str) -> None:
        for name in self.sites.names:
            file = self.sites.root / "apart" / name / "site.toml"
            text = file.read_text()
            assert "\n[limits]\n" in text
            file.write_text(text.replace("[limits]\n", f'[limits]\njobs = ["{jobs}"]\n'))

    def both(self, method: str, out: Path, watcher: Any = None, **settings: Any) -> tuple[Run, Run]:
        here = launch.start(self.sites.experiment(method, "local", **settings), out / "here")
        experiment = self.sites.experiment(method, "flower", **settings)
        self.real.superlink.start(experiment, out / "there", watcher)
        return here, load(out / "there")


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    root = tmp_path_factory.mktemp("short")
    with RealLink(root / "link", CONTRACT) as real:
        yield Connected(root, real)


@pytest.mark.deploy
def test_two_sites_give_the_same_result_as_one_place(connected: Connected, tmp_path: Path) -> None:
    rounds: list[int] = []

    class Looking:
        def round_done(self, number: int, *_: object) -> None:
            rounds.append(number)

        def round_failed(self, *_: object) -> None:
            raise AssertionError("no round may fail")

    here, there = connected.both("fedavg", tmp_path, Looking(), rounds=2, hidden=[8], test_every=0)
    assert outcome(there) == outcome(here)
    assert rounds == [1, 2]
    assert list(connected.real.superlink.requests.iterdir()) == []


@pytest.mark.deploy
def test_what_the_servers_program_refuses_is_told_to_the_user(connected: Connected, tmp_path: Path) -> None:
    wrong = connected.sites.experiment("fedavg", "flower", rounds=1, data={"rows": 9})
    with refused(ConfigError, "data-held-by-sites", "data.rows"):
        connected.real.superlink.start(wrong, tmp_path / "wrong")
    assert not (tmp_path / "wrong").exists()


@pytest.mark.deploy
@pytest.mark.parametrize("method", ["realtime", pytest.param("nevofed", marks=pytest.mark.soak)])
def test_searches_give_the_same_result_as_in_one_place(connected: Connected, tmp_path: Path, method: str) -> None:
    here, there = connected.both(method, tmp_path, **SEARCHES[method])
    assert outcome(there) == outcome(here)


@pytest.fixture(scope="module")
def with_images(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connected]:
    root = tmp_path_factory.mktemp("images")
    with RealLink(root / "link") as real:
        yield Connected(root, real, images=True)


@pytest.mark.deploy
@pytest.mark.soak
@pytest.mark.parametrize("method", IMAGE_METHODS)
def test_searches_on_images_give_the_same_result(with_images: Connected, tmp_path: Path, method: str) -> None:
    here, there = with_images.both(method, tmp_path, **IMAGE_METHODS[method])
    assert outcome(there) == outcome(here)


@pytest.mark.deploy
def test_the_contract_of_engines_in_short(
    connected: Connected, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Order, streams, memory, failures, rejections, a quorum and its late reply, bytes."""
    monkeypatch.syspath_prepend(str(CONTRACT))
    connected.allow("atoll.testing.jobs")
    here, there = connected.both("contract_method:ContractMethod", tmp_path, rounds=2, hidden=[4])
    first, second = (event["metrics"] for event in there.history)
    drawn = stream(1, "client", 1, "south", 0).random(3).tolist()
    assert first["replies"] == [
        {"numbers": drawn},
        {"calls": 1},
        "ValueError: asked to fail",
        "rejected, count: 6 is outside 0 to 5",
        "there is no client 'nobody'",
        {},
    ]
    assert second["quorum"] == [{"value": "soon"}]
    assert second["replies"] == ["{'calls': 2}", "{'value': 'late'}", "{'value': 'soon'}", "{}"]
    for mine, theirs in zip(here.history, there.history, strict=True):
        assert mine["metrics"]["replies"] == theirs["metrics"]["replies"]
        for figure in ("bytes_up", "bytes_down", "client_macs", "tasks"):
            assert mine["ledger"][figure] == theirs["ledger"][figure], figure
