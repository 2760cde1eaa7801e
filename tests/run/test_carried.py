"""After a private search: what goes on with its networks, or competes with it, on the same rows is private, too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import atoll
from atoll.cli.app import app
from atoll.config import resolve
from atoll.run import launch
from atoll.run.baselines.rivals import rivals_of
from atoll.run.baselines.tuning import Tuned
from atoll.run.carried import same_rows
from atoll.run.reader import Run
from atoll.run.retrain import assemble_retraining

DATA = {"name": "wine", "clients": 3, "scale": "none", "split": (0.7, 0.3, 0.0)}
NOISE = {"noise": 2.0, "count_noise": 9.0}
PRIVACY = {"epsilon": 50.0, "clip": 0.5, **NOISE}
SETTINGS: dict[str, Any] = {"widths": [4, 4], "norm": "group", "population": 2, "batch": 10}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out, tables = tmp_path_factory.mktemp("found") / "run", {"privacy": PRIVACY}
    return atoll.search("realtime", DATA, out=out, workers=0, rounds=1, settings=tables, **SETTINGS)


def spent(run: Run) -> float:
    return max(float(own["epsilon"]) for own in run.result["privacy"]["clients"].values())


def test_retraining_is_private_unless_that_is_asked_for(found: Run) -> None:
    table = assemble_retraining(found, ["high"], {})["privacy"]
    assert (table["epsilon"], table["clip"], table["earlier_epsilon"]) == (50.0, 0.5, spent(found))
    assert not set(NOISE) & set(table)  # it is decided again, for other rounds
    assert assemble_retraining(found, ["high"], {"data": "digits"})["privacy"]["earlier_epsilon"] == 0  # other rows
    named = assemble_retraining(found, ["high"], {"data": "wine"})  # the same rows by their name
    assert named["privacy"]["earlier_epsilon"] == spent(found)
    assert "privacy" not in assemble_retraining(found, ["high"], {}, private=False)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"name": "wine"}, {"name": "wine", "rows": 20}, True),
        ({"name": "wine"}, {"name": "digits"}, False),
        ({"name": "in-memory"}, {"name": "in-memory"}, True),  # nothing else is known of them
        ({"folder": "a/b"}, {"folder": "a/c/../b"}, True),
        ({"folder": "a/b"}, {"folder": "a/b/north.csv"}, True),
        ({"folder": "a"}, {"folder": "a/b"}, True),
        ({"folder": "a/b"}, {"folder": "a/bc"}, False),
        ({"folder": "a"}, {"name": "wine"}, False),
    ],
)
def test_what_may_be_the_same_rows(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    assert same_rows(one, other) == same_rows(other, one) == same


def test_both_are_added_up_before_and_after_the_retraining(found: Run, tmp_path: Path) -> None:
    raw = assemble_retraining(found, ["high"], {"rounds": 1}, [f"privacy.{key}={one}" for key, one in NOISE.items()])
    _, lines = launch.estimate(resolve(raw))
    earlier = f"earlier runs have spent epsilon {spent(found):.3g} at delta 1e-05 on the same rows"
    assert any(earlier in line and "at delta 2e-05" in line for line in lines)
    again = atoll.retrain(found.path, out=tmp_path / "again", rounds=1, workers=0, settings={"privacy": NOISE})
    third = assemble_retraining(again, ["high"], {})["privacy"]
    assert third["earlier_epsilon"] == spent(found) + spent(again) and third["earlier_delta"] == 2e-5
    words = ["show", str(again.path)]
    assert earlier in " ".join(CliRunner().invoke(app, words, env={"COLUMNS": "300"}).output.split())


def test_rivals_are_private(found: Run) -> None:
    rivals = rivals_of(found)
    assert rivals
    for rival in rivals:
        assert rival.raw["privacy"]["epsilon"] == 50.0 and "noise" not in rival.raw["privacy"]


def test_tuning_says_that_each_rate_spends_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "file.toml"
    file.write_text('method = "fedavg"\n[data]\nname = "wine"\n[privacy]\nepsilon = 3.0\n')
    monkeypatch.setattr("atoll.run.baselines.tuning.tune", lambda *_: Tuned(0.1, {0.1: 0.5}, 0))
    words = ["tune", str(file), "--rates", "0.1,0.3", "--out", str(tmp_path / "out")]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "300"})
    assert shown.exit_code == 0 and "each of the 2 runs spends up to epsilon 3 on the same rows" in shown.output
