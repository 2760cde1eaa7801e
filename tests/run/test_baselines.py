"""Rivals of a search: which there are, what they cost by hand, and how their learning rate is chosen."""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import atoll
from atoll import spaces
from atoll.cli.app import app
from atoll.config import read_file, resolve, to_toml
from atoll.errors import ConfigError, RunDirectoryError
from atoll.run.baselines.rivals import Rival, rivals_of, scaled, stages
from atoll.run.baselines.running import RivalRuns, run_rivals
from atoll.run.baselines.tuning import about_own_rate, rates_from, tune, tuning_costs, with_validation_rows
from atoll.run.reader import Run, load
from atoll.spaces.sparse import space as sparse
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
    # The search has two rounds and two of closing; random search four times as many before the closing phase.
    random = resolve(found["random"].raw)
    assert random.settings.search == "random" and (random.settings.rounds, random.settings.closing) == (10, 2)  # type: ignore[attr-defined]
    measured = search.result["ledger"]["per_round"][-1]["client_macs"]
    assert random.stop.macs == budget - measured > 0, "its networks are measured at its end, too"


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
    options: dict[str, Any] = {"rates": [1e-6, 0.1], "wanted": ["like-high"]}
    ((name, tuned, runs, *_),) = run_rivals({1: search, 2: search}, tmp_path / "out", **options)
    assert name == "like-high" and tuned is not None and tuned.rate == 0.1 and tuned.macs > 0
    assert [run.manifest["seed"] for run in runs] == [1, 2]
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}
    ((_, again, *_),) = run_rivals({1: search, 2: search}, tmp_path / "out", **options)
    assert again == tuned
    assert files == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*") if path.is_file()}


def test_each_seed_gets_the_budget_of_its_own_search(search: Run, tmp_path: Path) -> None:
    settings = {"data": {"clients": 4}, "seed": 2}
    longer = atoll.search(
        "realtime", {"name": "wine"}, out=tmp_path / "longer", rounds=9, workers=0, settings=settings, widths=[16, 8]
    )
    ((_, _, runs, *_),) = run_rivals({1: search, 2: longer}, tmp_path / "out", rates=[0.1], wanted=["standard"])
    budgets = [one.result["ledger"]["client_macs"] for one in (search, longer)]
    shares = [RivalRuns("standard", None, [run]).cost_share({1: search, 2: longer}) for run in runs]
    assert all(0.5 < share <= 1.02 for share in shares)
    for run, budget in zip(runs, budgets, strict=True):
        spent = run.result["ledger"]["client_macs"]
        assert spent <= 1.02 * budget and spent + spent / run.result["rounds"] > 0.98 * budget
    assert runs[1].result["rounds"] > runs[0].result["rounds"]


class Edited(Run):
    """A run whose result is not what its file says."""

    def __init__(
        self, run: Run, macs: int | None = None, budget: int | None = None, stopped: str | None = None
    ) -> None:
        super().__init__(run.path)
        self._macs, self._budget, self._stopped = macs, budget, stopped

    @property
    def result(self) -> dict[str, Any]:
        found = super().result
        for candidate in found["candidates"]:
            candidate["objectives"]["macs"] = self._macs or candidate["objectives"]["macs"]
        found["ledger"]["client_macs"] = self._budget or found["ledger"]["client_macs"]
        return found | {"stopped": self._stopped}


def test_a_rival_that_cannot_exist_is_left_out_unless_it_is_asked_for(search: Run, tmp_path: Path) -> None:
    """The smallest MLP 13-1-1-3 has 17 MACs, and 5 are allowed."""
    tiny = Edited(search, macs=5)
    found = {one.name: one.problem for one in rivals_of(tiny)}
    assert "smallest has 17" in found["like-high"] and found["standard"] == ""
    with refused(ConfigError, "no-rival-small-enough", "5 MACs", 17):
        rivals_of(tiny, wanted=["standard", "like-high"])
    shutil.copytree(search.path, tmp_path / "poor")
    poor = Edited(load(tmp_path / "poor"), budget=1000)
    with refused(ConfigError, "budget-too-small", "1,000", poor.path):
        rivals_of(poor, wanted=["standard"])
    outcomes = run_rivals({1: poor, 2: search}, tmp_path / "out", rates=[0.1])
    problems = [next(outcomes) for _ in range(5)]
    assert [one.name for one in problems] == ["standard", "like-high", "like-knee", "logistic", "random"]
    assert all(one.problem and one.without == (poor.path,) and not one.runs for one in problems)
    names = [one.name for one in rivals_of(search)]
    assert "like-knee" in names and "knee" in search.candidate("high")["picks"], "Knee of this search is High"
    assert not (tmp_path / "out").exists(), "what is left out is said before anything is trained"
    first, *others = outcomes
    assert first.name == "standard" and [run.manifest["seed"] for run in first.runs] == [2], "seed 2 has this rival"
    assert [one.name for one in others] == ["like-high", "logistic", "random"], "without `like-high` again"


def test_regularisers_are_those_of_the_search(tmp_path: Path) -> None:
    own = {"prox": 0.1, "weight_decay": 1e-3, "clip": 5.0}
    options: dict[str, Any] = {"rounds": 2, "workers": 0, "widths": [4, 4], "settings": {"data": {"clients": 3}}}
    run = atoll.search("realtime", "wine", out=tmp_path / "run", **options, **own)
    (rival,) = rivals_of(run, wanted=["standard"])
    assert rival.raw["retrain"].items() >= own.items()


def test_rivals_have_the_tables_of_the_search(search: Run, tmp_path: Path) -> None:
    """All but `[stop]`, and what of `[robust]` is about choosing between networks."""
    config = {**read_file(search.path / "config.toml"), "stop": {"macs": 10**6}, "patience": 5}
    config |= {"robust": {"models": "median", "confirm": True}, "faults": {"rule": [{"kind": "nan"}]}}
    config |= {"simulation": {"latency": 0.5}}
    shutil.copytree(search.path, tmp_path / "run")
    (tmp_path / "run" / "config.toml").write_text(to_toml(config))
    cut = Edited(load(tmp_path / "run"), stopped="stop.macs")
    found = {rival.name: rival.raw for rival in rivals_of(cut, wanted=["logistic", "random"])}
    for raw in found.values():
        assert all(raw[name] == config[name] for name in ("seed", "patience", "data", "simulation", "faults"))
    assert "stop" not in found["logistic"] and found["logistic"]["robust"] == {"models": "median"}
    assert found["random"]["stop"].keys() == {"macs"} and found["random"]["robust"] == config["robust"]


def test_a_shorter_run_for_the_choice_of_a_rate_keeps_its_phases() -> None:
    """The run of 9 rounds was cut after 7, or at 900 MACs; a third of both."""
    raw = {"method": "offline", "data": {"name": "wine"}, "offline": {"rounds": 9, "generations": 6}}
    shorter = Rival("random", {**raw, "stop": {"rounds": 7, "macs": 900}}).experiment(0.1, share=1 / 3)
    settings: Any = shorter.settings
    assert (settings.rounds, settings.generations, shorter.stop.rounds, shorter.stop.macs) == (3, 2, 2, 300)
    closing = {"method": "realtime", "data": {"name": "wine"}, "realtime": {"rounds": 4, "finish": 0.7}}
    assert Rival("random", closing).experiment(0.1, share=1 / 3).settings.rounds == 2, "one round is left to search"


@pytest.mark.parametrize(
    ("method", "options", "rival"),
    [
        ("nevofed", {"rounds": 1, "population": 10, "refine": 0.0, "polish": 0.0}, "fine-tuned"),
        ("offline", {"rounds": 4, "generations": 2, "population": 2, "widths": [4, 4], "epochs": 1}, "random"),
    ],
)
def test_the_command_chooses_a_rate_for_runs_with_phases(
    method: str, options: dict[str, Any], rival: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = atoll.search(method, "wine", out=tmp_path / "run", workers=0, settings={"data": {"clients": 3}}, **options)
    monkeypatch.setattr("atoll.run.reader.load", lambda path: Edited(run, budget=2_500_000))
    words = ["--rivals", rival, "--rates", "0.03,0.1", "--out", str(tmp_path / "rivals"), "--quiet", "--workers", "0"]
    done = CliRunner().invoke(app, ["baselines", str(run.path), *words])
    assert done.exit_code == 0, done.output
    lengths = [run.result["rounds"] for run in (load(path.parent) for path in tmp_path.glob("rivals/**/config.toml"))]
    assert sorted(lengths) == {"nevofed": [2, 2, 3], "offline": [3, 3, 10]}[method]


def test_rivals_of_nevofed_use_its_budget(tmp_path: Path) -> None:
    """It has no local epochs of its own: those of the rival's preset count, two."""
    options: dict[str, Any] = {"rounds": 1, "population": 10, "refine": 0.0, "polish": 0.0}
    run = atoll.search("nevofed", "wine", out=tmp_path / "run", workers=0, **options)
    rich = Edited(run, budget=10**7)
    found = {one.name: one for one in rivals_of(rich)}
    assert set(found) == {"standard", "logistic", "alone", "fine-tuned"}
    sizes = {"train": 107, "validation": 36}  # of 178 wines on ten clients
    for name, method in (("standard", "retrain"), ("logistic", "retrain"), ("alone", "personal")):
        own = found[name].raw[method]
        hidden = [] if name == "logistic" else [32, 16]
        wide = [13, *hidden, 3]
        macs = sum(before * after for before, after in pairwise(wide))
        each = macs * (3 * 2 * sizes["train"] + sizes["validation"])
        assert own["rounds"] == pytest.approx(10**7 / each, rel=0.05)
    rounds, shared = (found["fine-tuned"].raw["personal"][key] for key in ("rounds", "shared"))
    assert rounds == found["alone"].raw["personal"]["rounds"] and shared == rounds - round(0.2 * rounds)
    assert "shared" not in found["alone"].raw["personal"]
    schedules = {one.raw[one.table]["schedule"] for one in found.values()}
    assert schedules == {"cosine"}, "all rivals have the same"
    with refused(ConfigError, "budget-too-small", "2 rounds"):
        rivals_of(Edited(run, budget=10**6), wanted=["fine-tuned"])
    with refused(ConfigError, "budget-too-small", "no rival is left"):
        list(run_rivals({1: Edited(run, budget=10)}, tmp_path / "out"))


def test_the_standard_of_moefl_appears_twice(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 1, "fitness_rounds": 1, "finish": 0.0, "population": 2, "epochs": 1}
    run = atoll.search("moefl", "wine", out=tmp_path / "run", workers=0, **options)
    rich = Edited(run, budget=10**9)
    found = {one.name: one for one in rivals_of(rich, wanted=["standard", "paper"])}
    assert found["standard"].rate is None and found["paper"].rate == 0.1
    assert [one.raw["retrain"]["schedule"] for one in found.values()] == ["cosine", "decay"]
    networks = [one.raw["retrain"]["networks"][name] for name, one in found.items()]
    assert networks[0] == networks[1] and networks[0]["hidden"] == [200, 200]
    (logistic,) = rivals_of(rich, wanted=["logistic"])
    network = logistic.raw["retrain"]["networks"]["logistic"]
    assert network == networks[0] | {"hidden": []}, "it starts by the rule of sparse networks, too"


def test_a_convolutional_rival_has_fewer_filters_too() -> None:
    whole = sparse.standard({"model": "cnn", "input": [1, 28, 28], "classes": 10})
    limit = spaces.cost(whole).macs // 20
    found = scaled(whole, limit)
    assert found["filters"][0] < 32 and found["hidden"][0] < 128 and spaces.cost(found).macs <= limit


def test_test_rows_choose_no_learning_rate(tmp_path: Path) -> None:
    """Where there are no validation rows, the runs of the choice set aside a fifth of the training rows."""
    raw = {"method": "fedavg", "engine": {"workers": 0}, "fedavg": {"rounds": 3, "hidden": [4]}}
    raw["data"] = {"name": "wine", "clients": 3, "split": [0.8, 0.0, 0.2]}
    found = tune(Rival("plain", raw), [1e-6, 0.1], tmp_path)
    assert found.set_aside and found.rate == 0.1
    for rate, error in found.errors.items():
        run = load(tmp_path / f"lr-{rate:g}" / "seed-1")
        assert read_file(run.path / "config.toml")["data"]["split"] == [0.64, 0.16, 0.2]
        assert sum(own["validation"] for own in run.manifest["clients"].values()) == 28
        assert error == min(one["objectives"]["error"] for one in run.result["candidates"])
    whole, aside = with_validation_rows({**raw, "data": {"name": "wine", "clients": 3}}, None)
    assert "split" not in whole["data"] and not aside
    # Validation rows that are trained on say nothing either.
    trained = {"method": "retrain", "data": {"name": "wine"}, "retrain": {"with_validation": True}}
    assert with_validation_rows(trained, None)[0]["retrain"]["with_validation"] is False


def test_the_luckiest_client_does_not_choose_for_personal_networks(tmp_path: Path) -> None:
    raw = {"method": "personal", "engine": {"workers": 0}, "personal": {"rounds": 3, "hidden": [4]}}
    raw["data"] = {"name": "wine", "clients": 3}
    found = tune(Rival("alone", raw), [0.1], tmp_path)
    run = load(tmp_path / "lr-0.1" / "seed-1")
    own = [one["objectives"]["error"] for one in run.result["candidates"] if one.get("owner")]
    assert len(set(own)) > 1 and found.errors[0.1] == pytest.approx(sum(own) / 3)


def test_the_commands_say_what_was_done(search: Run, tmp_path: Path) -> None:
    words = ["--rates", "0.1", "--out", str(tmp_path / "rivals"), "--quiet", "--workers", "0"]
    done = CliRunner().invoke(app, ["baselines", str(search.path), "--rivals", "random", *words])
    assert done.exit_code == 0, done.output
    shown = " ".join(done.output.split())
    assert "of the search's client MACs" in shown and "was not chosen from a grid" in shown
    file = tmp_path / "plain.toml"
    file.write_text('method = "fedavg"\n[data]\nname = "wine"\nsplit = [0.8, 0.0, 0.2]\n[fedavg]\nrounds = 1\n')
    words = ["--rates", "0.1", "--out", str(tmp_path / "tuning"), "--quiet", "--workers", "0"]
    done = CliRunner().invoke(app, ["tune", str(file), *words])
    assert done.exit_code == 0, done.output
    assert "validation error" in done.output and "set aside" in " ".join(done.output.split())


def test_random_search_ends_with_its_closing_phase_within_the_budget(search: Run, tmp_path: Path) -> None:
    ((_, _, (run,), *_),) = run_rivals({1: search}, tmp_path / "out", rates=[0.1], wanted=["random"])
    phases = [event["metrics"].get("phase", "search") for event in run.rounds]
    assert phases[-1] == "final" and run.result["stopped"].startswith("stop.macs")
    spent, budget = (one.result["ledger"]["client_macs"] for one in (run, search))
    assert 0.5 * budget < spent <= 1.02 * budget


def test_a_search_without_a_whole_generation_has_no_random_rival(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 4, "fitness_rounds": 4, "finish": 0.0, "population": 2, "epochs": 1}
    limits = {"stop": {"rounds": 2}}
    run = atoll.search("moefl", "wine", out=tmp_path / "run", workers=0, settings=limits, **options)
    budget = run.result["ledger"]["client_macs"]
    with refused(ConfigError, "budget-too-small", f"{budget:,}", "4 rounds"):
        rivals_of(run, wanted=["random"])


def test_a_run_of_the_paper_has_no_limit_and_neither_has_its_random_rival(tmp_path: Path) -> None:
    options: dict[str, Any] = {"rounds": 2, "fitness_rounds": 1, "population": 2, "epochs": 1, "preset": "paper"}
    settings = {"data": {"clients": 2}}
    run = atoll.search("moefl", "wine", out=tmp_path / "run", workers=0, settings=settings, **options)
    (rival,) = rivals_of(run, wanted=["random"])
    assert resolve(rival.raw).settings.max_connections is None  # type: ignore[attr-defined]


def test_a_search_can_be_tuned_as_its_rivals_are(search: Run, tmp_path: Path) -> None:
    """The runs of the grid stand beside it, and what they cost is known."""
    shutil.copytree(search.path, tmp_path / "run")
    run = load(tmp_path / "run")
    assert "atoll tune" in str(about_own_rate(run)) and list(tuning_costs(run.path)) == []
    done = CliRunner().invoke(app, ["tune", str(run.path), "--rates", "1e-6,0.1", "--quiet", "--workers", "0"])
    assert done.exit_code == 0, done.output
    (cost,) = tuning_costs(run.path)
    grid = [load(path.parent) for path in tmp_path.glob("run-tuning/lr-*/seed-1/config.toml")]
    assert len(grid) == 2 and cost.name == "run" and cost.rates == [0.1, 1e-6]
    assert cost.macs == sum(one.result["ledger"]["client_macs"] for one in grid)
    assert "0.1, is the best of 1e-06, 0.1" in str(about_own_rate(run))


def test_what_has_no_rivals_is_refused(search: Run, tmp_path: Path) -> None:
    plain = atoll.search("fedavg", "wine", out=tmp_path / "plain", rounds=1, workers=0, hidden=[2])
    with refused(RunDirectoryError, "no-rivals", "fedavg"):
        rivals_of(plain)
    with refused(ConfigError, "unknown-rival", "randm", "random"):
        rivals_of(search, wanted=["randm"])
    for text in ("", "a,b", "0.1,-1", "0.1,inf"):
        with refused(ConfigError, "invalid-rates", text):
            rates_from(text)
