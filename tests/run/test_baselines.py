"""Rivals of a search: which there are, what they cost by hand, and how their learning rate is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll import spaces
from atoll.errors import ConfigError, RunDirectoryError
from atoll.run.baselines import rates_from, rivals_of, run_rivals, scaled, stages
from atoll.run.reader import Run
from refusals import refused


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("search")
    settings = {"data": {"clients": 4}}
    data: dict[str, Any] = {"name": "wine"}
    return atoll.search("realtime", data, out=folder / "run", rounds=4, workers=0, settings=settings, widths=[16, 8])


def test_rivals_get_the_rounds_that_the_search_pays_for(search: Run) -> None:
    found = {rival.name: rival for rival in rivals_of(search)}
    assert set(found) == {"standard", "like-high", "like-knee", "logistic", "random"}
    budget = search.result["ledger"]["client_macs"]
    sizes = {"train": 107, "validation": 36}  # of 178 wines on four clients: see the sum of their parts
    for name in ("standard", "logistic"):
        settings = found[name].raw["retrain"]
        (network,) = settings["networks"].values()
        macs = spaces.cost(network).macs
        # A training pass counts three forward passes; the search has two local epochs.
        each = macs * (3 * 2 * sizes["train"] + sizes["validation"])
        assert settings["rounds"] == pytest.approx(budget // each, abs=max(1, 0.02 * budget / each))
        assert settings["epochs"] == 2 and settings["schedule"] == "cosine"
    assert found["logistic"].raw["retrain"]["networks"]["logistic"]["hidden"] == []
    assert found["standard"].raw["retrain"]["networks"]["standard"]["hidden"] == [16, 8]
    assert found["random"].raw["realtime"]["search"] == "random" and found["random"].raw["realtime"]["rounds"] == 4


def test_a_rival_of_equal_macs_is_the_widest_that_fits() -> None:
    resnet = {"space": "fixed", "model": "resnet18", "widths": [8, 16, 32, 64], "input": [1, 28, 28], "classes": 10}
    limit = spaces.cost(resnet).macs // 3
    thin = scaled(resnet, limit)
    assert spaces.cost(thin).macs <= limit
    wider = {**thin, "widths": [width + 1 for width in thin["widths"]]}
    assert spaces.cost(wider).macs > limit
    assert scaled(resnet, spaces.cost(resnet).macs) == resnet
    with refused(ConfigError, "no-rival-small-enough", "10 MACs"):
        scaled(resnet, 10)
    assert stages([8, 8, 16, 16, 32]) == [8, 16, 32, 32] and stages([8, 16, 32, 64, 128]) == [8, 16, 32, 64]


def test_the_learning_rate_is_chosen_once_and_runs_are_used_again(search: Run, tmp_path: Path) -> None:
    options: dict[str, Any] = {"rates": [1e-6, 0.1], "wanted": ["logistic"]}
    ((name, tuned, runs),) = run_rivals({1: search, 2: search}, tmp_path / "out", **options)
    assert name == "logistic" and tuned is not None and tuned.rate == 0.1 and tuned.macs > 0
    assert [run.manifest["seed"] for run in runs] == [1, 2]
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}
    ((_, again, _),) = run_rivals({1: search, 2: search}, tmp_path / "out", **options)
    assert again == tuned
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_each_seed_gets_the_budget_of_its_own_search(search: Run, tmp_path: Path) -> None:
    settings = {"data": {"clients": 4}, "seed": 2}
    longer = atoll.search(
        "realtime", {"name": "wine"}, out=tmp_path / "longer", rounds=9, workers=0, settings=settings, widths=[16, 8]
    )
    ((_, _, runs),) = run_rivals({1: search, 2: longer}, tmp_path / "out", rates=[0.1], wanted=["logistic"])
    budgets = [one.result["ledger"]["client_macs"] for one in (search, longer)]
    for run, budget in zip(runs, budgets, strict=True):
        spent = run.result["ledger"]["client_macs"]
        assert spent <= 1.02 * budget and spent + spent / run.result["rounds"] > 0.98 * budget
    assert runs[1].result["rounds"] > runs[0].result["rounds"]


def test_what_has_no_rivals_is_refused(search: Run, tmp_path: Path) -> None:
    plain = atoll.search("fedavg", "wine", out=tmp_path / "plain", rounds=1, workers=0, hidden=[2])
    with refused(RunDirectoryError, "no-rivals", "fedavg"):
        rivals_of(plain)
    with refused(ConfigError, "unknown-rival", "randm", "random"):
        rivals_of(search, wanted=["randm"])
    for text in ("", "a,b", "0.1,-1", "0.1,inf"):
        with refused(ConfigError, "invalid-rates", text):
            rates_from(text)
