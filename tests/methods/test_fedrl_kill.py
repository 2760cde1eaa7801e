"""A search that is killed in warm-up, search and retraining, with replies in flight, ends as if it never had been."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from atoll.reading import load
from programs import loaded, rounds_done, run, start, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("loaded")

SETTINGS = ("fedrl", "--data", "digits", "--clients", 4, "--rounds", 9, "--quiet", "--set", "data.rows=300")
SIZES = ("--set", "fedrl.channels=2", "--set", "fedrl.cells=1", "--set", "fedrl.batch=8")
PHASES = ("--set", "fedrl.warmup=3", "--set", "fedrl.retrain=2", "--set", "network.staleness=heavy")


def outcome(directory: Path) -> dict[str, Any]:
    found = load(directory)
    result = {key: value for key, value in found.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in found.history]
    digests = [found.load_model(candidate["id"]).weights.whole_digest() for candidate in result["candidates"]]
    return {"result": result, "events": events, "weights": digests}


def test_killed_in_every_phase(tmp_path: Path) -> None:
    options = (*SETTINGS, *SIZES, *PHASES, "--workers", 0)
    assert run("run", *options, "--out", tmp_path / "whole").code == 0
    path = tmp_path / "killed"
    child = start("run", *options, "--out", path)
    codes = []
    for target in (2, 5, 8):
        wait_until(lambda target=target: rounds_done(path) >= target)  # type: ignore[misc]
        child.send(signal.SIGKILL)
        codes.append(child.wait().code)
        child = start("resume", path, "--quiet", "--workers", target % 3)
    assert child.wait().code == 0
    assert -signal.SIGKILL in codes  # on a busy machine a run may be quicker than its killer
    assert outcome(path) == outcome(tmp_path / "whole")
