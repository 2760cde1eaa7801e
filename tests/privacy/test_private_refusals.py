"""What `[privacy]` refuses before the first round, with the numbers and a hint, and nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.config import resolve
from atoll.errors import ConfigError
from atoll.run import launch
from atoll.testing import made_table
from privacy.test_private_runs import FEDAVG, GIVEN, SPLIT, images, started, table
from refusals import refused

REFUSALS: list[tuple[str, str, dict[str, Any], dict[str, Any], str]] = [
    ("epsilon", "fedavg", FEDAVG, {"epsilon": 1e-9}, "privacy.epsilon = 1e-09: 2 trainings would spend"),
    ("clipping", "fedavg", FEDAVG, {"epsilon": 5.0, "noise": 1.0}, "without clipping noise hides nothing"),
    (
        "clients",
        "fedavg",
        FEDAVG,
        {**GIVEN, "protects": "clients"},
        "privacy.least_clients = 1,000, there are 3; write",
    ),
    ("3 clients", "fedavg", FEDAVG, {**GIVEN, "protects": "clients", "least_clients": 3}, "this is not built; write"),
    ("no noise", "fedavg", FEDAVG, {**GIVEN, "noise": 0.01}, "privacy.noise = 0.01"),
    ("no count noise", "fedavg", FEDAVG, {**GIVEN, "count_noise": 0.01}, "privacy.count_noise = 0.01"),
    ("no clipping", "fedavg", FEDAVG, {**GIVEN, "clip": 1e-30}, "privacy.clip = 1e-30"),
    ("delta", "fedavg", FEDAVG, {**GIVEN, "delta": 0.02}, r"privacy.delta = 0.02: it must be below 1 / 60 "),
    (
        "not one task",
        "fedavg",
        FEDAVG,
        {**GIVEN, "epsilon": 0.05},
        "privacy.epsilon = 0.05: with noise 2 for gradients and 6 for counts one training and one count spend",
    ),
    ("no accounts of counts", "fedavg", FEDAVG, {"epsilon": 1e-9, "noise": 900.0, "clip": 1.0}, "counts would spend"),
    ("batch norm", "realtime", {"rounds": 1, "population": 2}, GIVEN, "is a batch norm.*set norm = 'group'"),
    ("nevofed", "nevofed", {"rounds": 1}, GIVEN, "genomes go to every participant"),
    ("personal", "personal", {"rounds": 1}, GIVEN, "fitted to its rows, without noise"),
    ("reward", "fedrl", {"rounds": 1, "reward_rows": 50}, GIVEN, "fedrl.reward_rows = 50"),
    ("f1 of decnas", "decnas", {"rounds": 1, "objective": "weighted_f1"}, GIVEN, "decnas.objective = 'weighted_f1'"),
    ("fednas", "fednas", {"rounds": 1, "level": "mixed"}, GIVEN, "level = 'mixed' .* use 'validation'"),
    ("accuracy", "retrain", {"rounds": 1, "client_accuracy": True}, GIVEN, "retrain.client_accuracy = True"),
    ("f1", "moefl", {"rounds": 4, "objective": "weighted_f1"}, GIVEN, "moefl.objective = 'weighted_f1'"),
]


@pytest.mark.parametrize(
    ("method", "settings", "privacy", "message"), [row[1:] for row in REFUSALS], ids=[row[0] for row in REFUSALS]
)
def test_refused_before_the_first_round(
    tmp_path: Path, method: str, settings: dict[str, Any], privacy: dict[str, Any], message: str
) -> None:
    data = images() if method in ("fedrl", "fednas") else table()
    with pytest.raises(ConfigError, match=message) as problem:
        started(tmp_path / "run", method, data, settings, privacy)
    assert "\n" not in str(problem.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"scale": "federated"}, "in memory with scale = 'federated'"),
        ({"scale": "client"}, "data.scale = 'client'"),
        ({"blocks": "random"}, "data.blocks = 'random': the class of one row can change the part"),
        ({"blocks": "by_class"}, "data.blocks = 'by_class'"),
        ({"missing": "mean"}, "data.missing = 'mean'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_data_that_is_not_covered_is_refused(tmp_path: Path, data: dict[str, Any], message: str) -> None:
    options = {"scale": "none", "split": SPLIT, "blocks": "shuffled", **data}
    with pytest.raises(ConfigError, match=message):
        started(tmp_path / "run", "fedavg", made_table(clients=3, rows=60, **options), FEDAVG, GIVEN)


def test_an_engine_whose_noise_is_not_known_is_refused(tmp_path: Path) -> None:
    raw = {"method": "fedavg", "data": {"name": launch.IN_MEMORY}, "fedavg": FEDAVG, "privacy": GIVEN}
    experiment = resolve(raw)
    plug_in = experiment.engine.model_copy(update={"name": "plug-in"})
    with refused(ConfigError, "privacy-engine", "'plug-in'"):
        launch.start(experiment.model_copy(update={"engine": plug_in}), tmp_path / "run", data=table())


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.extras.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"dp_accounting is missing; install it with: pip install 'atoll\[privacy\]'"):
        started(tmp_path / "run", "fedavg", table(), FEDAVG, GIVEN)
