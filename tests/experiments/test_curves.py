"""Curves are read from run directories only: events in, a figure or a CSV file out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from atoll.errors import ConfigError, RunDirectoryError
from atoll.run.reader import Run, load
from refusals import refused
from scripts import script

curves = script("experiments/fedavg/curves.py")
curve, draw_curves, write_curve = curves.curve, curves.draw_curves, curves.write_curve

PNG = b"\x89PNG\r\n\x1a\n"


def made_run(folder: Path, *events: dict[str, Any], torn: bytes = b"") -> Run:
    """A run directory with these events and nothing else that a curve needs."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('method = "fedavg"\n')
    lines = [json.dumps(event).encode() + b"\n" for event in events]
    (folder / "events.jsonl").write_bytes(b"".join(lines) + torn)
    return load(folder)


def round_done(number: int, **metrics: Any) -> dict[str, Any]:
    return {"round": number, "metrics": metrics}


def test_a_curve_has_a_point_for_every_round_that_measured(tmp_path: Path) -> None:
    run = made_run(
        tmp_path / "run",
        round_done(1, test_accuracy=0.5, error=0.5),
        {"round": 2, "failed": "no client answered", "attempt": 1},
        round_done(2, error=0.4),
        round_done(3, test_accuracy=0.75, error=0.25),
        torn=b'{"round": 4, "metr',
    )
    assert curve(run) == {1: 0.5, 3: 0.75}
    assert curve(run, "error") == {1: 0.5, 2: 0.4, 3: 0.25}


def test_a_csv_holds_the_curve(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", round_done(1, test_accuracy=0.5), round_done(2, test_accuracy=2 / 3))
    written = write_curve(run, tmp_path / "curve.csv")
    assert written.read_bytes() == b"round,test_accuracy\n1,0.5\n2,0.666667\n"


def test_several_runs_share_a_figure(tmp_path: Path) -> None:
    first = made_run(tmp_path / "first", round_done(1, test_accuracy=0.5), round_done(2, test_accuracy=0.6))
    second = made_run(tmp_path / "second", round_done(1, test_accuracy=0.4))
    both = draw_curves({"first run": first, "second run": second}, tmp_path / "figures" / "both.svg")
    text = both.read_text()
    assert "first run" in text and "second run" in text and "test accuracy" in text
    alone = draw_curves({"first run": first}, tmp_path / "alone.svg").read_text()
    assert "first run" in alone and "second run" not in alone
    assert draw_curves({"first run": first}, tmp_path / "alone.png").read_bytes().startswith(PNG)


def test_the_same_curves_give_the_same_file(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", round_done(1, loss=2.0), round_done(2, loss=1.0))
    once = draw_curves({"run": run}, tmp_path / "once.png", "loss").read_bytes()
    assert once == draw_curves({"run": run}, tmp_path / "twice.png", "loss").read_bytes()
    other = made_run(tmp_path / "other", round_done(1, loss=2.0), round_done(2, loss=1.5))
    assert once != draw_curves({"run": other}, tmp_path / "other.png", "loss").read_bytes()


def test_a_metric_that_was_not_measured_is_refused_with_those_that_were(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", round_done(1, test_accuracy=0.5, keys=[1, 2]))
    with refused(RunDirectoryError, "metric-not-recorded", run.path, "'accuracy'", "'test_accuracy'"):
        draw_curves({"run": run}, tmp_path / "figure.png", "accuracy")
    assert not (tmp_path / "figure.png").exists()


def test_a_run_without_rounds_is_refused(tmp_path: Path) -> None:
    with refused(RunDirectoryError, "metric-not-recorded", tmp_path / "run"):
        curve(made_run(tmp_path / "run"))


def test_other_kinds_of_figure_and_no_runs_are_refused(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", round_done(1, test_accuracy=0.5))
    with refused(ConfigError, "unknown-figure-format", "figure.pdf", ".png", ".svg"):
        draw_curves({"run": run}, tmp_path / "figure.pdf")
    with refused(ConfigError, "no-run-named"):
        draw_curves({}, tmp_path / "figure.png")
