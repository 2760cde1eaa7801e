"""Searches killed in the middle of what they do, and resumed with other workers, end as if they never had been."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from atoll.run.reader import load
from outcomes import outcome
from programs import loaded, rounds_done, run, start, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("loaded")

# How many rounds, after which of them the run is killed, and settings.
SEARCHES: dict[str, tuple[int, tuple[int, ...], list[str]]] = {
    # Within a generation, with weights of its networks under way.
    "moefl": (6, (1, 3, 5), ["data.rows=600", "moefl.fitness_rounds=3", "moefl.population=4", "moefl.epochs=1"]),
    # Round 1 trains the start network, 2 to 5 are the first iteration, 6 and 7 belong to the second.
    "decnas": (
        7,
        (2, 4, 6),
        [
            "data.rows=300",
            "decnas.widths=[4, 4, 8, 8, 8, 8]",
            "decnas.start_rounds=1",
            "decnas.tune_rounds=[4]",
            "decnas.epochs=1",
        ],
    ),
    # In warm-up, search and retraining, with replies in flight.
    "fedrl": (
        9,
        (2, 5, 8),
        [
            "data.rows=300",
            "fedrl.channels=2",
            "fedrl.cells=1",
            "fedrl.batch=8",
            "fedrl.warmup=3",
            "fedrl.retrain=2",
            "simulation.staleness=heavy",
        ],
    ),
}


@pytest.mark.parametrize("method", SEARCHES)
def test_killed_three_times(method: str, tmp_path: Path) -> None:
    rounds, kills, settings = SEARCHES[method]
    words = [word for setting in settings for word in ("--set", setting)]
    options = (method, "--data", "digits", "--clients", 4, "--rounds", rounds, "--quiet", "--workers", 0, *words)
    assert run("run", *options, "--out", tmp_path / "whole").code == 0
    path = tmp_path / "killed"
    child = start("run", *options, "--out", path)
    codes = []
    for target in kills:
        wait_until(lambda target=target: rounds_done(path) >= target)  # type: ignore[misc]
        child.send(signal.SIGKILL)
        codes.append(child.wait().code)
        child = start("resume", path, "--quiet", "--workers", target % 3)
    assert child.wait().code == 0
    assert -signal.SIGKILL in codes  # on a busy machine a run may be quicker than its killer
    assert outcome(load(path)) == outcome(load(tmp_path / "whole"))
