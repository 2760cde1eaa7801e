"""As many steps in all for a network that was not searched, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.config import read_file, to_toml
from atoll.errors import ConfigError
from atoll.testing import made_images
from refusals import refused
from scripts import script

equal_steps = script("experiments/decnas/equal_steps.py")
OWN: dict[str, Any] = {"rounds": 4, "model": "convnet", "widths": [4] * 6, "batch": 8, "step": 0.1, "groups": 2}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One round of federated averaging, then three of a search, in iterations of two rounds."""
    folder = tmp_path_factory.mktemp("decnas") / "run"
    tables = {"decnas": OWN | {"start_rounds": 1, "tune_rounds": [2], "epochs": 3, "steps": 5}}
    atoll.search("decnas", made_images(clients=4, side=8, share_labels=True), out=folder, workers=0, settings=tables)
    return folder


def test_the_steps_of_a_search_are_added_in_rounds_of_long_tuning(run: Path) -> None:
    rows = {own["train"] for own in json.loads((run / "manifest.json").read_text())["clients"].values()}
    assert rows == {14}, "two batches of 8"
    assert equal_steps.steps_of(run) == (3, 5, 2) and equal_steps.steps_of(run, epochs=2) == (3, 5, 4)
    assert equal_steps.Steps(3, 5, 4).rounds(10) == 14, "15 steps are 3.75 rounds"
    assert equal_steps.Steps(3, 5, 5).rounds(10) == 13 and equal_steps.Steps(0, 5, 5).rounds(10) == 10


def test_without_a_limit_a_round_has_all_of_its_epochs_and_untuned_iterations_have_none(
    run: Path, tmp_path: Path
) -> None:
    tables = read_file(run / "config.toml")
    (tmp_path / "again").mkdir()
    for name in ("manifest.json", "events.jsonl", "result.json"):
        (tmp_path / "again" / name).write_bytes((run / name).read_bytes())
    del tables["decnas"]["steps"]
    (tmp_path / "again" / "config.toml").write_text(to_toml(tables))
    assert equal_steps.steps_of(tmp_path / "again") == (3, 6, 2)
    tables["decnas"]["tune_rounds"] = [0]
    (tmp_path / "again" / "config.toml").write_text(to_toml(tables))
    assert equal_steps.steps_of(tmp_path / "again").searched == 0


def test_another_kind_of_run_is_refused(run: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("manifest.json", "events.jsonl", "result.json"):
        (tmp_path / "other" / name).write_bytes((run / name).read_bytes())
    tables = '[data]\nname = "digits"\n[fedavg]\nrounds = 2\n'
    (tmp_path / "other" / "config.toml").write_text(f'method = "fedavg"\n{tables}')
    with refused(ConfigError, "not-a-search", tmp_path / "other"):
        equal_steps.steps_of(tmp_path / "other")
