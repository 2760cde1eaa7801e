"""A search that is killed in the middle of an iteration, with candidates half tuned, ends as if it never had been."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from methods.test_moefl_kill import outcome
from programs import loaded, rounds_done, run, start, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("loaded")

SETTINGS = ("decnas", "--data", "digits", "--clients", 4, "--rounds", 7, "--quiet", "--set", "data.rows=300")
SMALL = ("decnas.widths=[4, 4, 8, 8, 8, 8]", "decnas.start_rounds=1", "decnas.tune_rounds=[4]", "decnas.epochs=1")
OPTIONS = [word for setting in SMALL for word in ("--set", setting)]


def test_killed_in_every_second_round(tmp_path: Path) -> None:
    """Round 1 trains the start network, 2 to 5 are the first iteration, 6 and 7 belong to the second."""
    assert run("run", *SETTINGS, *OPTIONS, "--workers", 0, "--out", tmp_path / "whole").code == 0
    path = tmp_path / "killed"
    child = start("run", *SETTINGS, *OPTIONS, "--workers", 0, "--out", path)
    codes = []
    for target in (2, 4, 6):
        wait_until(lambda target=target: rounds_done(path) >= target)  # type: ignore[misc]
        child.send(signal.SIGKILL)
        codes.append(child.wait().code)
        child = start("resume", path, "--quiet", "--workers", target % 3)
    assert child.wait().code == 0
    assert -signal.SIGKILL in codes  # on a busy machine a run may be quicker than its killer
    assert outcome(path) == outcome(tmp_path / "whole")
