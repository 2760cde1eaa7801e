"""A search that is killed within a generation, with weights of its networks under way, ends as if it never had been."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from atoll.reading import load
from programs import loaded, rounds_done, run, start, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("loaded")

SETTINGS = ("moefl", "--data", "digits", "--clients", 4, "--rounds", 6, "--quiet", "--set", "data.rows=600")
SMALL = ("--set", "moefl.fitness_rounds=3", "--set", "moefl.population=4", "--set", "moefl.epochs=1")


def outcome(directory: Path) -> dict[str, Any]:
    found = load(directory)
    result = {key: value for key, value in found.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in found.history]
    digests = [found.load_model(candidate["id"]).weights.whole_digest() for candidate in result["candidates"]]
    return {"result": result, "events": events, "weights": digests}


def test_killed_in_every_second_round(tmp_path: Path) -> None:
    assert run("run", *SETTINGS, *SMALL, "--workers", 0, "--out", tmp_path / "whole").code == 0
    path = tmp_path / "killed"
    child = start("run", *SETTINGS, *SMALL, "--workers", 0, "--out", path)
    codes = []
    for target in (1, 3, 5):
        wait_until(lambda target=target: rounds_done(path) >= target)  # type: ignore[misc]
        child.send(signal.SIGKILL)
        codes.append(child.wait().code)
        child = start("resume", path, "--quiet", "--workers", target % 3)
    assert child.wait().code == 0
    assert -signal.SIGKILL in codes  # on a busy machine a run may be quicker than its killer
    assert outcome(path) == outcome(tmp_path / "whole")
