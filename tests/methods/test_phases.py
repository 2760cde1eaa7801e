"""Where a phase of a method begins, nobody waits any more for what was sent in the one before."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.federation.base import Federation
from atoll.testing import made_images, made_table

DARTS: dict[str, Any] = {"channels": 2, "cells": 1, "batch": 8}
CASES: dict[str, tuple[dict[str, Any], list[int]]] = {  # settings, and the first rounds of later phases
    "realtime": ({"rounds": 3, "population": 2, "channels": [4], "batch": 8, "finish": 0.6}, [2]),
    "offline": ({"rounds": 3, "generations": 1, "population": 2, "channels": [4], "batch": 8}, [2]),
    "moefl": ({"rounds": 3, "fitness_rounds": 1, "population": 2, "epochs": 1, "batch": 8, "finish": 0.6}, [2]),
    "fedrl": ({"rounds": 4, "warmup": 1, "retrain": 2, **DARTS}, [3]),
    "fednas": ({"rounds": 3, "retrain": 2, **DARTS}, [2]),
    "decnas": (
        {"rounds": 3, "model": "convnet", "widths": [4] * 6, "batch": 8, "step": 0.1, "start_rounds": 2, "groups": 2}
        | {"tune_rounds": [1]},
        [2],
    ),
    "nevofed": ({"rounds": 5, "population": 8, "refine": 0.4, "polish": 0.4}, [2, 4]),
}


@pytest.mark.parametrize("method", list(CASES))
def test_a_phase_begins_once(method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    begun: list[int] = []
    original = Federation.new_phase

    def noted(federation: Federation) -> None:
        begun.append(federation.round)
        original(federation)

    monkeypatch.setattr(Federation, "new_phase", noted)
    own, wanted = CASES[method]
    data = made_table(clients=4, rows=20) if method in ("moefl", "nevofed") else made_images(clients=4, side=8, rows=20)
    run = atoll.search(method, data, out=tmp_path / "run", workers=0, **own)
    last = len(run.rounds)  # the final measurements begin after the last round
    assert begun == [*wanted, last]
