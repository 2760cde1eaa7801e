"""A golden run of every method: what a tiny run found and cost when its file was written.

A change that alters results on purpose refreshes the files, and its diff shows what became different:

    python tests/methods/test_golden.py [METHOD ...]

Bits depend on the kind of CPU. Networks, picks and costs are compared exactly, other numbers to 1e-4 of their value.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.registry import names
from atoll.report.comparison.csv_file import comparison_csv
from atoll.report.comparison.output import plain_comparison
from atoll.report.comparison.rows import compare_runs
from atoll.report.comparison.tables import markdown, sections
from atoll.run.reader import Run
from atoll.testing import made_images, made_table
from atoll.training.determinism import prepare_environment

GOLDEN = Path(__file__).parent / "golden"
TOLERANCE = 1e-4
NEARLY = {"bytes_up": 4.0}  # a loss travels as decimal text, whose length depends on its last digits and so on the CPU

IMAGES: dict[str, dict[str, Any]] = {
    "realtime": {"side": 6},
    "decnas": {"side": 8, "share_labels": True},
    "netadapt": {"side": 8},
    "fedrl": {"side": 6},
    "fednas": {"side": 6},
}
PRUNING: dict[str, Any] = {"rounds": 5, "model": "convnet", "widths": [4] * 6, "batch": 8, "step": 0.1}
PRUNING |= {"start_rounds": 1, "tune_rounds": [2]}
SETTINGS: dict[str, dict[str, Any]] = {
    "fedavg": {"rounds": 3, "fraction": 0.75, "hidden": [8]},
    "nevofed": {"rounds": 4, "population": 12, "fraction": 0.75},
    "central": {"rounds": 3, "hidden": [8]},
    "personal": {"rounds": 3, "shared": 2, "hidden": [8]},
    "realtime": {"rounds": 4, "population": 3, "channels": [4, 8], "batch": 8, "finish_networks": "front"},
    "moefl": {"rounds": 6, "fitness_rounds": 2, "population": 3, "epochs": 1, "batch": 8},
    "retrain": {
        "rounds": 3,
        "networks": {
            "thin": {"space": "sparse", "model": "mlp", "hidden": [20], "epsilon": 3, "xi": 0.2, "lr": 0.2, "graph": 7},
            "full": {"space": "fixed", "model": "mlp", "hidden": [8]},
        },
    },
    "decnas": PRUNING | {"groups": 2},
    "netadapt": PRUNING,
    "retrain_central": {"rounds": 3, "networks": {"full": {"space": "fixed", "model": "mlp", "hidden": [8]}}},
    "offline": {"rounds": 4, "generations": 2, "population": 3, "widths": [6, 4], "batch": 8, "schedule": "decay"},
    "fedrl": {"rounds": 5, "warmup": 2, "retrain": 1, "channels": 2, "cells": 3, "batch": 8},
    "fednas": {"rounds": 2, "retrain": 1, "channels": 2, "cells": 1, "batch": 100},
}


def golden_run(method: str, folder: Path) -> dict[str, Any]:
    """The figures of the run, as they stand in its file."""
    data = made_images(**IMAGES[method]) if method in IMAGES else made_table()
    return figures(atoll.search(method, data, out=folder, workers=0, **SETTINGS[method]))


def figures(run: Run) -> dict[str, Any]:
    ledger = run.result["ledger"]
    return {
        "candidates": [
            {
                "id": candidate["id"],
                "picks": candidate["picks"],
                "objectives": candidate["objectives"],
                "weights": float(
                    sum(np.abs(array).sum() for array in run.load_model(candidate["id"]).weights.values())
                ),
            }
            for candidate in run.result["candidates"]
        ],
        "hypervolume": run.result["hypervolume"],
        "rounds": [event["metrics"] for event in run.rounds],
        "ledger": ledger["per_round"],
    }


def differences(wanted: Any, found: Any, place: str = "") -> list[str]:
    """Where two values differ. Whole numbers and words must be equal, floats nearly."""
    if isinstance(wanted, dict) and isinstance(found, dict) and wanted.keys() == found.keys():
        return [line for key in wanted for line in differences(wanted[key], found[key], f"{place}.{key}")]
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        return [
            line
            for i, pair in enumerate(zip(wanted, found, strict=True))
            for line in differences(*pair, f"{place}[{i}]")
        ]
    margin = NEARLY.get(place.rpartition(".")[2], TOLERANCE if isinstance(wanted, float) else 0.0)
    if margin and isinstance(found, int | float) and math.isclose(wanted, found, rel_tol=TOLERANCE, abs_tol=margin):
        return []
    return [] if type(wanted) is type(found) and wanted == found else [f"{place}: {wanted!r} is now {found!r}"]


@pytest.mark.parametrize("method", names("methods"))
def test_a_method_gives_what_it_gave(method: str, tmp_path: Path) -> None:
    wanted = json.loads((GOLDEN / f"{method}.json").read_text())
    found = golden_run(method, tmp_path / "run")
    assert differences(wanted, json.loads(json.dumps(found))) == []
    compared(method, tmp_path / "run", found)


def compared(method: str, folder: Path, found: dict[str, Any]) -> None:
    """What `atoll compare` says of a run of this method: in text, as data and as a table."""
    comparison = compare_runs([folder])
    plain = json.loads(json.dumps(plain_comparison(comparison), allow_nan=False))
    trained = [one for one in found["candidates"] if "test_error" in one["objectives"] or one["id"].startswith("pers")]
    assert plain["rows"] and len(plain["rows"]) <= len(trained) + 1
    for row in plain["rows"]:
        assert row["group"] == method and row["seeds"] == [1] and 0 <= row["test_error"][0] <= 1
        assert row["macs"] > 0 and row["client_macs"][0] > 0
    assert bool(plain["hypervolume"]) == (found["hypervolume"] is not None)
    shown = sections(comparison)
    assert shown and all(len(line) == len(part.columns) for part in shown for line in part.rows)
    assert "nan" not in markdown(comparison)
    assert len(comparison_csv(comparison).splitlines()) == len(plain["rows"]) + 1


@pytest.mark.parametrize("method", names("methods"))
def test_no_reply_of_a_golden_run_is_rejected(method: str) -> None:
    """Neither by the norm rule, which is always on, nor by another."""
    rounds = json.loads((GOLDEN / f"{method}.json").read_text())["ledger"]
    assert sum(account["replies"]["used"] for account in rounds) > 0
    assert all(account["replies"]["rejected"] == account["replies"]["failed"] == 0 for account in rounds)


@pytest.mark.parametrize("method", ["fedavg", "realtime", "moefl", "fednas", "retrain"])
def test_clipping_rejects_no_honest_update(method: str, tmp_path: Path) -> None:
    """The golden run with short gradients, whose updates come close to what their clip allows."""
    data = made_images(**IMAGES[method]) if method in IMAGES else made_table()
    run = atoll.search(method, data, out=tmp_path / "run", workers=0, clip=0.05, **SETTINGS[method])
    assert all(account["replies"]["rejected"] == 0 for account in run.result["ledger"]["per_round"])


def test_no_golden_run_is_missing_or_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(names("methods")) == set(SETTINGS)


def test_a_difference_is_noticed() -> None:
    golden = {"id": "01", "correct": 3, "error": 0.25, "picks": ["high"]}
    assert differences(golden, {**golden, "error": 0.25 + 1e-6}) == []
    for change in ({"id": "02"}, {"correct": 4}, {"error": 0.251}, {"picks": []}, {"correct": 3.0}):
        assert len(differences(golden, {**golden, **change})) == 1
    assert len(differences(golden, {"id": "01"})) == 1


def refresh() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for method in sys.argv[1:] or names("methods"):
        with tempfile.TemporaryDirectory() as folder:
            figures = golden_run(method, Path(folder) / "run")
        (GOLDEN / f"{method}.json").write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    prepare_environment()
    refresh()
