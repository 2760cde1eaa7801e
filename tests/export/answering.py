"""A found network, exported and used the way a stranger would: by `net_predict.py`, without Atoll and torch."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from atoll.config import resolve
from atoll.preparation import Answers
from atoll.run import launch
from atoll.run.reader import Run

# Imports nothing but numpy, onnxruntime and the standard library, whatever is installed beside them.
ALONE = """
import runpy, sys
class Only:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in {"numpy", "onnxruntime", "flatbuffers"}:
            raise ImportError(f"{name} is not there")
sys.meta_path.insert(0, Only())
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""

SETTINGS: dict[str, dict[str, Any]] = {
    "fedavg": {"rounds": 3, "epochs": 2, "batch": 10},
    "central": {"rounds": 2, "batch": 10},
    "realtime": {"rounds": 2, "population": 2, "batch": 10},
    "offline": {"rounds": 2, "population": 2, "batch": 10},
    "moefl": {"rounds": 4, "population": 4, "fitness_rounds": 2, "batch": 10},
    "nevofed": {"rounds": 4, "population": 20},
    "fedrl": {"rounds": 8, "channels": 4, "cells": 3, "batch": 8},
    "fednas": {"rounds": 2, "channels": 4, "cells": 3, "batch": 8},
    "decnas": {"rounds": 6, "start_rounds": 2, "tune_rounds": [1], "groups": 3, "batch": 10},
    "netadapt": {"rounds": 4, "start_rounds": 2, "tune_rounds": [1], "batch": 10},
}
IMAGES_ONLY = ("fedrl", "fednas", "decnas", "netadapt")


def found_by(method: str, data: dict[str, Any], out: Path, **settings: Any) -> Run:
    """A short run."""
    own = {**SETTINGS[method], **settings}
    raw = {"method": method, "data": data, method: own, "engine": {"workers": 0}}
    return launch.start(resolve(raw), out)


def alone(network: Path, rows: Path, python: str = sys.executable) -> tuple[list[str], Any]:
    """Classes and values from the program beside an exported network, in a process of its own."""
    program, answers = network.with_name(f"{network.stem}_predict.py"), network.with_name("answers.csv")
    isolated = [python, "-c", ALONE] if python == sys.executable else [python]
    done = subprocess.run([*isolated, str(program), str(rows), "-o", str(answers)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with answers.open(encoding="utf-8", newline="") as file:
        _, *lines = csv.reader(file)
    return [line[1] for line in lines], np.array([[float(cell) for cell in line[2:]] for line in lines])


def same(mine: tuple[list[str], Any], theirs: Answers) -> None:
    """All classes equal, values within 1e-5 (relative for large scores)."""
    labels, values = mine
    assert labels == theirs.labels
    np.testing.assert_allclose(values, theirs.values, rtol=1e-5, atol=1e-5)
