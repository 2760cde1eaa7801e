"""Accuracies over seeds and paired differences, from run directories written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import DataError
from made_runs import manifest
from refusals import refused
from scripts import script

intervals = script("experiments/fedrl/intervals.py")


def made(folder: Path, seed: int, accuracy: float) -> Path:
    """A search whose accuracy is known, then the training of what it found."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('method = "fedrl"\n')
    (folder / "manifest.json").write_text(manifest("fedrl", seed=seed))
    metrics: list[dict[str, Any]] = [
        {"phase": "warmup", "moving_accuracy": 0.9},
        {"phase": "search", "moving_accuracy": 0.1},
        {"phase": "search", "moving_accuracy": accuracy},
        {"phase": "final", "error": 0.5},
    ]
    events = [{"round": number, "metrics": own} for number, own in enumerate(metrics, start=1)]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def test_differences_are_paired_by_seed(tmp_path: Path) -> None:
    """By seed 0.1 and 0.3: the mean is 0.2, and with two values Student's factor is 12.706 times 0.1."""
    for seed, (one, other) in enumerate([(0.5, 0.4), (0.8, 0.5)], start=1):
        made(tmp_path / "compensate" / str(seed), seed, one)
        made(tmp_path / "use" / str(3 - seed), seed, other)
    made(tmp_path / "use" / "9", 9, 0.0)
    found = intervals.groups([tmp_path / "compensate", tmp_path / "use"])
    assert found == {"compensate": {1: 0.5, 2: 0.8}, "use": {1: 0.4, 2: 0.5, 9: 0.0}}
    number, interval = intervals.difference(found["compensate"], found["use"])
    assert number == 2 and interval.mean == pytest.approx(0.2)
    assert (interval.low, interval.high) == pytest.approx((0.2 - 1.27062, 0.2 + 1.27062), abs=1e-4)
    text = intervals.table(found)
    assert "| compensate | 0.500 | 0.800 |  | 0.650" in text and "| use | 0.400 | 0.500 | 0.000 | 0.300" in text
    assert text.endswith("compensate - use: +0.200 (-1.071 to +1.471), 2 seeds")


def test_runs_whose_names_differ_in_the_last_number_are_a_group(tmp_path: Path) -> None:
    runs = [made(tmp_path / f"use-{seed}", seed, 0.25 * seed) for seed in (1, 2)]
    assert intervals.groups(runs) == {"use": {1: 0.25, 2: 0.5}}


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one, twice = made(tmp_path / "use-1", 1, 0.5), made(tmp_path / "use-2", 1, 0.5)
    with refused(DataError, "seed-twice", "seed 1"):
        intervals.groups([one, twice])
    (tmp_path / "empty").mkdir()
    with refused(DataError, "no-runs-found", tmp_path / "empty"):
        intervals.groups([tmp_path / "empty"])
    with refused(DataError, "no-common-seed"):
        intervals.difference({1: 0.5}, {2: 0.5})
    (one / "events.jsonl").write_text(json.dumps({"round": 1, "metrics": {"error": 0.5}}) + "\n")
    with refused(DataError, "no-accuracy", one):
        intervals.groups([one])
