"""`atoll retrain`: from a run to the experiment that trains its networks anew."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from atoll.api import search
from atoll.errors import ConfigError, DataError
from atoll.run.reader import Run, load
from atoll.run.retrain import assemble_retraining
from programs import loaded, run  # noqa: F401 (a fixture)
from refusals import refused

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("found") / "run"
    data = {"name": "digits", "clients": 3, "rows": 300}
    return search("moefl", data, out=folder, workers=0, rounds=2, fitness_rounds=1, population=4, epochs=1, seed=5)


def tables(found: Run, picks: str = "high1", *settings: str, **options: Any) -> dict[str, Any]:
    return assemble_retraining(found, picks.split(","), options, settings)


def test_the_run_s_data_and_training_are_taken_over(found: Run) -> None:
    raw = tables(found, "high1, knee1")
    assert (raw["method"], raw["seed"]) == ("retrain", 5)
    assert raw["data"]["name"] == "digits" and raw["data"]["clients"] == 3 and raw["data"]["rows"] == 300
    assert raw["retrain"]["epochs"] == 1 and "population" not in raw["retrain"]
    assert list(raw["retrain"]["networks"]) == ["high1", "knee1"]
    assert raw["retrain"]["networks"]["high1"] == found.load_model("high1").architecture


def test_options_and_settings_go_on_top(found: Run) -> None:
    raw = tables(found, "high1", "retrain.lr=0.5", **{"rounds": 7, "data.partition": "shards:2", "seed": None})
    assert raw["retrain"]["rounds"] == 7 and raw["retrain"]["lr"] == 0.5
    assert raw["data"]["partition"] == "shards:2" and raw["seed"] == 5


def test_other_data_is_dealt_out_alike_and_nothing_else_is_kept(found: Run) -> None:
    raw = tables(found, data="wine")
    assert raw["data"] == {"name": "wine", "clients": 3, "partition": "iid"}
    with refused(DataError, "unknown-dataset", "'vine-yards'"):
        tables(found, data="vine-yards")


def test_a_pick_that_is_not_there(found: Run) -> None:
    with refused(ConfigError, "no-pick-named", "--pick"):
        tables(found, " , ")


def test_networks_made_by_hand_stand_beside_what_was_found(found: Run) -> None:
    raw = tables(found, "high1,mlp,cnn", "retrain.networks.mlp.hidden=[8]")
    assert raw["retrain"]["networks"]["mlp"] == {"space": "fixed", "model": "mlp", "hidden": [8]}
    assert raw["retrain"]["networks"]["cnn"] == {"space": "fixed", "model": "cnn"}
    raw = assemble_retraining(found, ["high1", "mlp"], {}, start="found")
    assert list(raw["retrain"]["start"]) == ["high1"]  # nobody has weights for the other


def test_networks_of_other_runs_are_trained_alike(found: Run, tmp_path: Path) -> None:
    """Under the same picks, with the first run's data and training, and from their own weights."""
    other = load(shutil.copytree(found.path, tmp_path / "rival"))
    raw = assemble_retraining(found, ["high1", "mlp"], {}, start="found", beside=[other])
    assert list(raw["retrain"]["networks"]) == ["high1", "mlp", "rival-high1"]
    assert raw["retrain"]["networks"]["rival-high1"] == other.load_model("high1").architecture
    assert raw["retrain"]["start"]["rival-high1"] == str(other.weights_file("high1").resolve())
    with refused(ConfigError, "duplicate-network-name", f"--beside {other.path}", "'rival-high1'"):
        assemble_retraining(found, ["high1"], {}, beside=[other, other])
    with refused(ConfigError, "no-found-network", f"--beside {other.path}"):
        assemble_retraining(found, ["mlp"], {}, beside=[other])


def test_the_command(found: Run, tmp_path: Path) -> None:
    path, beside = tmp_path / "again", shutil.copytree(found.path, tmp_path / "rival")
    options = ("--rounds", 1, "--partition", "shards:2", "--workers", 0, "--quiet", "--out", path)
    ended = run("retrain", found.path, "--pick", "high1,standard", "--beside", beside, *options)
    assert ended.code == 0, ended
    again = load(path)
    assert [candidate["id"] for candidate in again.result["candidates"]] == ["high1", "standard", "rival-high1"]
    config = tomllib.loads((path / "config.toml").read_text())
    assert config["data"]["partition"] == "shards:2" and config["retrain"]["networks"]["standard"]["epsilon"] == 10**9
    wrong = run("retrain", found.path, "--pick", "hihg1", "--out", tmp_path / "none")
    assert wrong.code == 2 and all(word in wrong.err for word in ("[unknown-pick]", "'hihg1'", "'high1'"))
    assert run("retrain", tmp_path, "--out", tmp_path / "none").code == 2
    assert not (tmp_path / "none").exists()


def test_networks_on_other_data_take_its_shape(found: Run, tmp_path: Path) -> None:
    path = tmp_path / "wine"
    ended = run("retrain", found.path, "--data", "wine", "--rounds", 1, "--workers", 0, "--quiet", "--out", path)
    assert ended.code == 0, ended
    architecture = load(path).load_model("high").architecture
    assert architecture["input"] == [13] and architecture["classes"] == 3
    assert architecture["hidden"] == found.load_model("high").architecture["hidden"]
