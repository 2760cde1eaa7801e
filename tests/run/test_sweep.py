"""Sweeps over methods: one file, one folder for each method, the same seeds, and a budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.config import dump, merge, resolve
from atoll.errors import ConfigError, RunDirectoryError
from atoll.run.launch import decided
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
    with refused(RunDirectoryError, "different-run-present", "stop.macs", "no value", 10**15):
        list(sweep(resolve(raw | {"stop": {"macs": 10**15}}), [1], tmp_path / "out"))


OTHERS: dict[str, tuple[dict[str, Any], object]] = {  # what a run was made with beyond the plain one, and its value
    "data.rows": ({"data": {"rows": 100}}, 100),
    "data.partition": ({"data": {"partition": "dirichlet:0.5"}}, "dirichlet:0.5"),
    "data.split": ({"data": {"split": [0.5, 0.25, 0.25]}}, "[0.5, 0.25, 0.25]"),
    "fedavg.prox": ({"fedavg": {"prox": 0.1}}, 0.1),
    "fedavg.hidden": ({"fedavg": {"hidden": [5]}}, "[5]"),
    "robust.clip": ({"robust": {"clip": 3.0}}, 3.0),
    "faults": ({"faults": {"rule": [{"kind": "dropout", "clients": 0.1}]}}, "dropout"),
    "engine.quorum": ({"engine": {"quorum": 0.9}}, 0.9),
    "simulation": ({"simulation": {"bandwidth": 1e6}}, '"bandwidth": 1000000.0'),
}


def test_a_run_with_a_setting_that_the_sweep_leaves_out_is_another_run(tmp_path: Path) -> None:
    plain = {"data": {"name": "wine", "clients": 3}, "engine": {"workers": 0}, "method": "fedavg"}
    plain |= {"fedavg": {"rounds": 1, "test_every": 0}}
    list(sweep(resolve(plain), [1], tmp_path))
    for name, (table, value) in OTHERS.items():
        other = resolve(merge(plain, table))
        made = decided(other)
        assert made is not None
        (tmp_path / "seed-1" / "config.toml").write_text(dump(made))
        list(sweep(other, [1], tmp_path))  # the same is used again
        with refused(RunDirectoryError, "different-run-present", f"{name} = ", value):
            list(sweep(resolve(plain), [1], tmp_path))


def test_what_the_data_decides_may_be_written_down(tmp_path: Path) -> None:
    plain = {"data": {"name": "wine", "clients": 4, "holdout_clients": 0.25}, "engine": {"workers": 0}}
    plain |= {"method": "fedavg", "fedavg": {"rounds": 1, "test_every": 0}}
    first = list(sweep(resolve(plain), [1, 2], tmp_path / "out"))
    held = {run.path: json.loads((run.path / "result.json").read_text())["candidates"][0] for run in first}
    assert all("held_out" in entry for entry in held.values())
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}
    written = {"data": {"partition": "iid", "split": [0.6, 0.2, 0.2]}, "engine": {"workers": 1}}
    assert len(list(sweep(resolve(merge(plain, written)), [1, 2], tmp_path / "out"))) == 2
    assert before == {path: path.stat().st_mtime_ns for path in tmp_path.rglob("result.json")}, "none was run again"


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
