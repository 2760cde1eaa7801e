"""Comparing runs: figures that can be checked by hand, and the commands from end to end."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.errors import ConfigError, RunDirectoryError
from atoll.report.compare import draw_boxes, gather, mann_whitney, markdown, spread
from atoll.run.sweep import seeds_from
from refusals import refused


def write_run(folder: Path, method: str, seed: int, f1: dict[str, float], **objectives: float) -> None:
    """A finished run as far as a comparison looks at it."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text("")
    (folder / "manifest.json").write_text(json.dumps({"method": method, "seed": seed}))
    main = {"picks": ["high"], "objectives": {"params": 10, **objectives}}
    main["clients"] = {name: {"test_f1": value} for name, value in f1.items()}
    ledger = {"bytes_up": 1000, "bytes_down": 3000}
    (folder / "result.json").write_text(json.dumps({"candidates": [main], "ledger": ledger, "rounds": 10}))


def write_clients(folder: Path, accounts: dict[str, Any]) -> None:
    path = folder / "result.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clients": accounts}))


def two_sweeps(folder: Path) -> list[Path]:
    for seed, value in ((1, 0.70), (2, 0.80), (10, 0.90)):
        write_run(
            folder / "evolved" / f"seed-{seed}",
            "nevofed",
            seed,
            {"a": value, "b": value - 0.2},
            psi=1 - value,
            hidden=3,
        )
        write_run(folder / "averaged" / f"seed-{seed}", "fedavg", seed, {"a": value - 0.5, "b": value - 0.5})
    return [folder / "evolved", folder / "averaged"]


def test_mann_whitney_by_hand() -> None:
    """Three values all above three others: U is 9 of 9; of the 20 ways to deal them out 2 are as extreme: p = 0.1."""
    assert mann_whitney([4.0, 5.0, 6.0], [1.0, 2.0, 3.0]) == (9.0, pytest.approx(0.1))
    assert all(math.isnan(value) for value in mann_whitney([1.0], [2.0, 3.0]))


def test_means_and_deviations() -> None:
    assert spread([0.5, 0.7]) == "0.6000 ± 0.1414"
    assert spread([0.5]) == "0.5000" and spread([]) == ""


def test_groups_tables_and_the_best_run_by_training(tmp_path: Path) -> None:
    groups = gather(two_sweeps(tmp_path))
    assert [group.name for group in groups] == ["evolved", "averaged"]
    assert groups[0].scores == pytest.approx([0.6, 0.7, 0.8])  # seed-10 comes after seed-2
    best = groups[0].best()
    assert best is not None and best.run.manifest["seed"] == 1, "by psi on training rows, not by what the test says"
    assert groups[1].best() is None
    text = markdown(groups)
    assert "| a | 0.8000 ± 0.1000 | 0.3000 ± 0.1000 |" in text
    assert "| evolved | 1 | 0.6000 ± 0.1414 |" in text
    assert "| evolved - averaged | +0.4000 | 9 | 0.1 |" in text
    assert "| 3.00 (3) |" in text and "| 100 | 300 |" in text


def test_single_runs_give_no_nan_and_no_markdown(tmp_path: Path) -> None:
    write_run(tmp_path / "one", "fedavg", 1, {"a": 0.5, "b": 0.7})
    write_run(tmp_path / "other", "nevofed", 1, {"a": 0.6})
    write_clients(tmp_path / "other", {"a": {"asked": 3, "used": 0, "failed": {"no reply": 3}, "idle": 0}})
    folders = [str(tmp_path / "one"), str(tmp_path / "other")]
    shown, page = (CliRunner().invoke(app, ["compare", *folders, *more]).output for more in ((), ("--markdown",)))
    assert "nan" not in shown + page and "| " not in shown and "±" not in shown + page
    assert "| fedavg | 1 | 0.6000 |" in page and "0.6000" in shown
    for text in (shown, page):
        assert "client 'a' never took part in 1 of 1 runs of 'nevofed'" in text and "needs two runs" in text


def test_box_plots_are_drawn(tmp_path: Path) -> None:
    draw_boxes(gather(two_sweeps(tmp_path)), tmp_path / "boxes.png")
    assert (tmp_path / "boxes.png").read_bytes().startswith(b"\x89PNG")


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    with refused(RunDirectoryError, "no-runs-found", tmp_path):
        gather([tmp_path])
    write_run(tmp_path / "bare", "fedavg", 1, {})
    with refused(RunDirectoryError, "no-finished-run", "fedavg"):
        gather([tmp_path / "bare"])


def test_seeds_are_a_number_a_range_or_a_list() -> None:
    assert seeds_from("3", 5) == [5, 6, 7]
    assert seeds_from("2-4", 1) == [2, 3, 4]
    assert seeds_from("1,9", 1) == [1, 9]
    for wrong in ("x", "0", "3-1", "1,1", "-2"):
        with pytest.raises(ConfigError, match="--seeds"):
            seeds_from(wrong, 1)


def test_sweep_and_compare_from_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "wine.toml"
    table = 'name = "wine"\nclients = 2\npartition = "iid"\n'
    file.write_text(f'method = "nevofed"\n[data]\n{table}[nevofed]\nrounds = 2\npopulation = 10\n')
    words = ["sweep", str(file), "--seeds", "2", "--workers", "0", "--quiet", "--out", str(tmp_path / "wine")]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    results = {path: path.read_bytes() for path in sorted((tmp_path / "wine").glob("*/result.json"))}
    assert len(results) == 2 and len(set(results.values())) == 2
    again = CliRunner().invoke(app, words)
    assert again.exit_code == 0 and {path: path.read_bytes() for path in results} == results, "finished runs are kept"
    other = CliRunner().invoke(app, [*words, "--set", "nevofed.population=12"])
    assert isinstance(other.exception, RunDirectoryError) and "another population" in str(other.exception)
    compared = CliRunner().invoke(app, ["compare", str(tmp_path / "wine"), "--out", str(tmp_path / "boxes.svg")])
    assert compared.exit_code == 0 and "| wine |" not in compared.output and (tmp_path / "boxes.svg").exists()
    assert "client-001" in compared.output
    explained = CliRunner().invoke(app, ["explain", str(tmp_path / "wine")])
    assert explained.exit_code == 0 and "of 13 features are used" in explained.output
    lines = (tmp_path / "wine" / "explained" / "features.csv").read_text().splitlines()
    assert lines[0] == "feature,name,runs_using,runs,mean_importance,deviation" and len(lines) == 14
