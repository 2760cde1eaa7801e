"""What a reader sees of a private run: `show`, `clients`, the report, the model card, and `--estimate`."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.config import resolve
from atoll.export.card import model_card
from atoll.report.html.run_report import write_report
from atoll.run import launch
from atoll.run.reader import Run
from atoll.testing import made_table

PRIVACY = {"epsilon": 5.0, "clip": 1.0, "noise": 2.0, "count_noise": 9.0}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    raw = {"method": "fedavg", "data": {"name": launch.IN_MEMORY}, "engine": {"workers": 0}, "privacy": PRIVACY}
    raw |= {"fedavg": {"hidden": [4], "batch": 10, "rounds": 1}}
    data = made_table(clients=3, rows=60, scale="none", split=(0.7, 0.3, 0.0), blocks="shuffled")
    return launch.start(resolve(raw), tmp_path_factory.mktemp("private") / "run", data=data)


def shown(*words: object) -> str:
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_show_and_clients(run: Run) -> None:
    spent = f"{run.clients['client-00']['epsilon']:.3g}"
    text = shown("show", run.path)
    assert f"each client has spent epsilon {spent} of 5 at delta 1e-05" in text
    assert "not covered: the numbers of rows" in text and "anyone who knows the seed" in text
    assert "epsilon" in shown("clients", run.path)
    assert '"epsilon"' in shown("show", run.path, "--json")


def test_the_report(run: Run, tmp_path: Path) -> None:
    text = write_report([run.path], tmp_path / "report.html").read_text(encoding="utf-8")
    assert "each client has spent epsilon" in text and ">epsilon<" in text and ">1e-05<" in text
    assert "epsilon spent by a client" in text


def test_the_model_card(run: Run) -> None:
    card = model_card(run.predictor("high"), run.facts("high"), "net.onnx", 100, 0.0, 10)
    assert "## Privacy" in card and "| client-00 |" in card.replace("\\", "") and "Not covered:" in card
    assert "No formal privacy" not in card


def test_the_estimate() -> None:
    words = ["run", "fedavg", "--data", "digits", "--rounds", 2, "--estimate", "--set", "privacy.epsilon=8.0"]
    words += ["--set", "data.split=[0.8,0.2,0.0]", "--set", "data.scale='none'", "--set", "privacy.count_noise=20.0"]
    text = shown(*words, "--set", "privacy.noise=5.0", "--set", "privacy.clip=1.0")
    assert "privacy: 2 trainings and 4 counts of each client are projected to spend epsilon" in text
    assert "of 8 at delta 1e-05" in text
