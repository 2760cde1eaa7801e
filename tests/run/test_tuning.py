"""The end of federated NetAdapt: networks of a sequence tuned further, in parallel on groups, beside multipliers."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll import spaces
from atoll.config import resolve
from atoll.errors import ArchitectureError, ConfigError, RunDirectoryError
from atoll.rng import stream
from atoll.run.reader import Run, load
from atoll.run.retrain import assemble_retraining
from atoll.spaces.pruned.pruning import pruned_to, scaled, units
from atoll.testing import made_table
from programs import loaded, run  # noqa: F401 (a fixture)
from refusals import refused

pytestmark = pytest.mark.usefixtures("loaded")


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Down to half of the MACs of a narrow ConvNet, on a corner of the digits."""
    folder = tmp_path_factory.mktemp("found") / "run"
    data = {"name": "digits", "clients": 4, "rows": 300}
    settings: dict[str, Any] = {"widths": [4, 4, 8, 8, 8, 8], "start_rounds": 1, "tune_rounds": [1], "step": 0.2}
    return atoll.search("decnas", data, out=folder, workers=0, epochs=1, momentum=0.5, **settings)


def tables(found: Run, picks: str, start: str = "scratch", *settings: str, **options: Any) -> dict[str, Any]:
    return assemble_retraining(found, picks.split(","), options, settings, start)


def test_the_search_s_training_is_taken_over_and_its_budget_steps_are_not(found: Run) -> None:
    raw = tables(found, "m0,final")["retrain"]
    assert raw["momentum"] == 0.5 and raw["epochs"] == 1 and "decay" not in raw and "start" not in raw
    assert raw["networks"]["final"] == found.load_model("final").architecture
    assert resolve(tables(found, "final", "scratch", "retrain.lr=0.5")).method == "retrain"


def test_width_multipliers(found: Run) -> None:
    networks = tables(found, "m0,width:0.5,width:=m1")["retrain"]["networks"]
    assert networks["width:0.5"] == scaled(networks["m0"], 0.5)
    assert [unit.width for unit in units(networks["width:0.5"])] == [2, 2, 4, 4, 4, 4]
    limit = found.result["candidates"][1]["objectives"]["macs"]
    assert 0.9 * limit < spaces.cost(networks["width:=m1"]).macs <= limit


def test_wrong_multipliers(found: Run, tmp_path: Path) -> None:
    with refused(ConfigError, "invalid-width-pick", "--pick width:wide"):
        tables(found, "width:wide")
    with pytest.raises(ArchitectureError, match="2"):
        tables(found, "width:2")
    with refused(RunDirectoryError, "unknown-pick", "'m99'"):
        tables(found, "width:=m99")
    with refused(ConfigError, "unknown-start", "--from fond", "'found'"):
        tables(found, "m0", "fond")
    other = atoll.search("fedavg", made_table(), out=tmp_path / "other", workers=0, rounds=1)
    with refused(RunDirectoryError, "no-pruned-networks", other.path, "--pick width:0.5"):
        tables(other, "width:0.5")


def test_networks_go_on_from_their_weights(found: Run) -> None:
    """The state before the first round holds what the search left; a multiplier is pruned from m0."""
    experiment = resolve(tables(found, "m0,final,width:0.5", "found"))
    first = found.load_model("m0")
    from atoll.methods.retrain import Retrain
    from atoll.testing import ScriptedFederation

    method = Retrain(experiment.settings.fitted(first.schema, 4), first.schema)  # type: ignore[arg-type]
    state = method.init(ScriptedFederation([], lambda task: {}), stream(1, "init"))
    for pick in ("m0", "final"):
        assert state.networks[pick].whole_digest() == found.load_model(pick).weights.whole_digest()
    cut = pruned_to(first.architecture, first.weights, scaled(first.architecture, 0.5))
    assert cut is not None and state.networks["width:0.5"].whole_digest() == cut.whole_digest()


def test_a_file_of_another_network(found: Run) -> None:
    raw = tables(found, "m0", "found")
    raw["retrain"]["networks"] = {"m0": {"space": "fixed", "model": "mlp", "hidden": [3]}}
    schema = found.load_model("m0").schema
    with refused(ConfigError, "weights-of-other-network", found.weights_file("m0").name):
        resolve(raw).settings.fitted(schema, 4)
    raw["retrain"]["start"] = {"m1": raw["retrain"]["start"]["m0"]}
    with pytest.raises(ConfigError, match=r"start\.m1.*'m0'"):
        resolve(raw).settings.fitted(schema, 4)
    raw["retrain"]["start"] = {"m0": "nowhere.safetensors"}
    with refused(ConfigError, "file-unreadable", "nowhere.safetensors"):
        resolve(raw).settings.fitted(schema, 4)


def test_the_command(found: Run, tmp_path: Path) -> None:
    path = tmp_path / "tuned"
    options = ("--rounds", 2, "--workers", 0, "--quiet", "--out", path)
    ended = run("retrain", found.path, "--pick", "m0,final,width:=final", "--from", "found", "--groups", 3, *options)
    assert ended.code == 0, ended
    again = load(path)
    assert [candidate["id"] for candidate in again.result["candidates"]] == ["m0", "final", "width:=final"]
    config = tomllib.loads((path / "config.toml").read_text())
    assert config["retrain"]["groups"] == 3 and list(config["retrain"]["start"]) == ["m0", "final", "width:=final"]
    # Each network is measured and trained on its own group: together all clients once, not three times.
    assert again.result["ledger"]["per_round"][0]["tasks"] == 4
    resumed = run("resume", path, "--rounds", 3, "--workers", 0, "--quiet")
    assert resumed.code == 0, resumed
    wrong = run("retrain", found.path, "--pick", "m0", "--groups", 5, "--out", tmp_path / "none")
    assert wrong.code == 2 and "groups = 5" in wrong.err
