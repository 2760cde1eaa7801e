"""Sweeps over methods: one file, one folder for each method, the same seeds, and a budget."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.config import resolve
from atoll.errors import ConfigError, RunDirectoryError
from atoll.run.sweep import methods_from, of_method, plan_of, sweep
from refusals import refused

FILE = """
[data]
name = "wine"
clients = 3

[engine]
workers = 0

[stop]
macs = 200000

[fedavg]
rounds = 9
hidden = [8]
test_every = 0

[personal]
rounds = 2
hidden = [8]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wine.toml"
    path.write_text(FILE)
    return path


def test_each_method_gets_the_shared_tables_and_its_own() -> None:
    raw = {"data": {"name": "wine"}, "fedavg": {"rounds": 3}, "realtime": {"rounds": 4}, "method": "offline"}
    assert of_method(raw, "fedavg") == {"data": {"name": "wine"}, "fedavg": {"rounds": 3}, "method": "fedavg"}
    assert of_method(raw, "personal") == {"data": {"name": "wine"}, "method": "personal"}


def test_names_of_methods() -> None:
    assert methods_from("fedavg, realtime") == ["fedavg", "realtime"]
    for wrong in ("", "fedavg,fedavg", "own:FedAvg,other:FedAvg"):
        with refused(ConfigError, "invalid-methods"):
            methods_from(wrong)


def test_a_sweep_over_methods_and_its_comparison(file: Path, tmp_path: Path) -> None:
    run, out = CliRunner().invoke, tmp_path / "out"
    done = run(app, ["sweep", str(file), "--methods", "personal,fedavg", "--seeds", "2", "--out", str(out), "--quiet"])
    assert done.exit_code == 0, done.output
    assert sorted(str(path.parent.relative_to(out)) for path in out.glob("*/*/result.json")) == [
        "fedavg/seed-1",
        "fedavg/seed-2",
        "personal/seed-1",
        "personal/seed-2",
    ]
    result = json.loads((out / "fedavg" / "seed-1" / "result.json").read_text())
    assert result["stopped"].startswith("stop.macs") and result["rounds"] < 9, "the budget has ended it"
    assert plan_of(out)["methods"] == ["personal", "fedavg"]
    done = run(app, ["compare", str(out), "-o", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert done.exit_code == 0 and page.index("personal") < page.index("fedavg"), "in the order of the sweep"
    assert "--methods personal,fedavg" in page, "with the command that made it"
    # Called again, nothing is run again.
    before = {path: path.stat().st_mtime_ns for path in out.glob("*/*/result.json")}
    run(app, ["sweep", str(file), "--methods", "personal,fedavg", "--seeds", "2", "--out", str(out), "--quiet"])
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("*/*/result.json")}


def test_without_a_budget_the_sweep_says_so(tmp_path: Path) -> None:
    file = tmp_path / "plain.toml"
    file.write_text(FILE.replace("macs = 200000", "").replace("rounds = 9", "rounds = 1"))
    command = ["sweep", str(file), "--methods", "fedavg", "--seeds", "1", "--out", str(tmp_path / "o"), "--quiet"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0 and "no budget in [stop]" in done.output


def test_a_budget_that_is_exceeded_already_is_refused(file: Path, tmp_path: Path) -> None:
    raw = {"data": {"name": "wine", "clients": 3}, "engine": {"workers": 0}, "method": "fedavg"}
    raw |= {"fedavg": {"rounds": 2, "hidden": [8], "test_every": 0}}
    list(sweep(resolve(raw), [1], tmp_path / "out"))
    with refused(RunDirectoryError, "budget-exceeded", "stop.macs = 1,000"):
        list(sweep(resolve(raw | {"stop": {"macs": 1000}}), [1], tmp_path / "out"))
    with refused(RunDirectoryError, "budget-exceeded", "stop.rounds = 1"):
        list(sweep(resolve(raw | {"stop": {"rounds": 1}}), [1], tmp_path / "out"))
    with refused(RunDirectoryError, "different-run-present", "stop"):
        list(sweep(resolve(raw | {"stop": {"macs": 10**15}}), [1], tmp_path / "out"))


def test_an_unknown_method_or_setting_is_refused_before_anything_runs(file: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    with refused(ConfigError, "unknown-method", "fedavgg"):
        run(
            app,
            ["sweep", str(file), "--methods", "personal,fedavgg", "--out", str(tmp_path / "o")],
            catch_exceptions=False,
        )
    with refused(ConfigError, "unknown-setting"):
        command = ["sweep", str(file), "--methods", "personal,fedavg", "--set", "fedavg.ronds=3"]
        run(app, [*command, "--out", str(tmp_path / "o")], catch_exceptions=False)
    assert not (tmp_path / "o").exists()
