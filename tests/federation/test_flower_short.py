"""A real link and two real nodes on the loopback: the same result as in one place."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll import launch
from atoll.errors import ConfigError
from atoll.federation import flower_run
from federation.real_link import RealLink
from federation.three_sites import ThreeSites, outcome

pytestmark = pytest.mark.deploy  # a real link and two nodes: minutes on a busy machine

ROUNDS = 2


def test_two_sites_give_the_same_result_as_one_place(tmp_path: Path) -> None:
    sites = ThreeSites(tmp_path / "sites", names=("north", "south"))
    settings = {"rounds": ROUNDS, "hidden": [8], "test_every": 0}
    here = launch.start(sites.experiment("fedavg", "local", **settings), tmp_path / "here")
    with RealLink(tmp_path / "link") as real:
        for name in sites.names:
            real.node(name, sites.config(name))
        rounds: list[int] = []

        class Looking:
            def round_done(self, number: int, *_: object) -> None:
                rounds.append(number)

            def round_failed(self, *_: object) -> None:
                raise AssertionError("no round may fail")

        experiment = sites.experiment("fedavg", "flower", **settings)
        # What the server's program refuses is told to the user who asked, in the same words.
        with pytest.raises(ConfigError, match=r"data\.rows: sites have their own data"):
            wrong = sites.experiment("fedavg", "flower", **settings, data={"rows": 9})
            flower_run.start(real.link, wrong, tmp_path / "wrong")
        assert not (tmp_path / "wrong").exists()
        there = flower_run.start(real.link, experiment, tmp_path / "there", watcher=Looking())
    assert outcome(there) == outcome(here)
    assert rounds == [1, 2]
    assert list((tmp_path / "link" / "requests").iterdir()) == []
