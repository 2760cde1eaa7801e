"""Searches killed in the middle of what they do, and resumed with other workers, end as if they never had been."""

from __future__ import annotations

import math
import shutil
import signal
import time
from pathlib import Path

import pytest

from atoll.rng import stream
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


@pytest.mark.parametrize(
    "method", [pytest.param(one, marks=[] if one == "moefl" else pytest.mark.soak) for one in SEARCHES]
)
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


# -- many kills, with two workers at work ------------------------------------------------------------------------------

PARTS = ("first", "second", "third", "fourth")  # of the kills of a method
KILLS = 200  # over all methods and parts
SMALL: dict[str, tuple[int, list[str]]] = {
    "fedavg": (6, []),
    "personal": (6, ["personal.shared=3"]),
    "nevofed": (5, ["nevofed.population=12"]),
    "realtime": (5, ["realtime.population=3", "realtime.channels=[4, 8]"]),
    "moefl": (4, ["moefl.fitness_rounds=2", "moefl.population=3", "moefl.epochs=1"]),
    "decnas": (5, [*SEARCHES["decnas"][2][1:]]),
    "fedrl": (6, ["fedrl.channels=2", "fedrl.cells=1", "fedrl.batch=8", "fedrl.warmup=2", "fedrl.retrain=1"]),
    "fednas": (3, ["fednas.channels=2", "fednas.cells=1", "fednas.retrain=1"]),
    "offline": (4, ["offline.generations=2", "offline.population=3", "offline.channels=[4, 8]"]),
}


def killed_and_resumed(method: str, kills: int, folder: Path, part: str = PARTS[0]) -> int:
    """So many times a run with two workers is killed at a random moment and resumed with up to two. A run that was
    quicker than its killer does not count; how many runs there were."""
    rounds, settings = SMALL[method]
    words = [word for setting in ("data.rows=300", *settings) for word in ("--set", setting)]
    options = (method, "--data", "digits", "--clients", 4, "--rounds", rounds, "--quiet", *words)
    assert run("run", *options, "--workers", 0, "--out", folder / "whole").code == 0
    begin = time.monotonic()
    assert run("run", *options, "--workers", 2, "--out", folder / "timed").code == 0
    seconds, expected = time.monotonic() - begin, outcome(load(folder / "whole"))
    assert outcome(load(folder / "timed")) == expected
    rng, killed, number = stream(1, "kills", method, part), 0, 0
    while killed < kills:
        number += 1
        assert number <= 10 * kills
        path = folder / str(number)
        child = start("run", *options, "--workers", 2, "--out", path)
        time.sleep(float(rng.uniform(0, seconds)))
        child.send(signal.SIGKILL)
        killed += child.wait().code == -signal.SIGKILL
        again = ("resume", path, "--quiet") if (path / "config.toml").exists() else ("run", *options, "--out", path)
        ended = run(*again, "--workers", int(rng.integers(3)))
        assert ended.code == 0, ended
        assert outcome(load(path)) == expected, (method, number)
        shutil.rmtree(path)
    return number


@pytest.mark.deploy
def test_a_search_with_two_workers_is_killed_at_a_random_moment(tmp_path: Path) -> None:
    killed_and_resumed("fedavg", 1, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("method", SMALL)
def test_two_hundred_kills(method: str, part: str, tmp_path: Path) -> None:
    kills = math.ceil(KILLS / len(SMALL) / len(PARTS))
    runs = killed_and_resumed(method, kills, tmp_path, part)
    print(f"{method}: {kills} of {runs} runs were killed before their end, all equal")
