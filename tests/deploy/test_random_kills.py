"""SIGKILL of every part at random moments: a run ends with the same result, or pauses and is resumed to it.

`ATOLL_KILLS` says how many of each (10), `ATOLL_KILL_SEED` when. A killed node takes about two minutes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.rng import Generator, stream
from atoll.run.reader import load
from deploy.conftest import SITES
from deploy.test_runs import LONG, arguments, named
from deployment import Deployment, Program, run_atoll, wait_for
from outcomes import outcome

pytestmark = [pytest.mark.deploy, pytest.mark.soak]

KILLS = int(os.environ.get("ATOLL_KILLS", "10"))
SEED = int(os.environ.get("ATOLL_KILL_SEED", "1"))
ROUNDS = 4
PATIENT = ("--set", "engine.wait=300")
PAUSES = (2.0, 25.0)  # seconds between two kills


def first(program: int, words: str) -> bool:
    """Kill the first of a program's processes with these words in its command; whether there was one."""
    for pid in named(program, words)[:1]:
        os.kill(pid, signal.SIGKILL)
        return True
    return False


def kill_at_a_site(words: str) -> Callable[[Deployment, Generator], bool]:
    return lambda joined, rng: first(joined.programs[str(rng.choice(SITES))].process.pid, words)


def kill_at_the_server(words: str) -> Callable[[Deployment, Generator], bool]:
    return lambda joined, rng: first(joined.server.process.pid, words)


def kill_the_server(joined: Deployment, rng: Generator) -> bool:
    joined.server.process.kill()
    joined.server.process.wait()
    time.sleep(3)  # its parts end with it
    joined.start_server()
    return True


VICTIMS: dict[str, Callable[[Deployment, Generator], bool]] = {
    "worker": kill_at_a_site("atoll.deploy.worker"),
    "node": kill_at_a_site("flower-supernode"),
    "proxy": kill_at_the_server("nginx"),
    "superlink": kill_at_the_server("flower-superlink"),
    "server program": kill_at_the_server("flwr-serverapp"),
    "server": kill_the_server,
}


@pytest.fixture(scope="module")
def whole(joined: Deployment, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the rounds give if nothing is killed."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    done = run_atoll(*arguments(joined, folder, ROUNDS, *PATIENT), seconds=LONG)
    assert done.returncode == 0, done.stderr
    return outcome(load(folder))


@pytest.mark.parametrize("victim", VICTIMS)
def test_kills_at_random_moments(joined: Deployment, whole: dict[str, Any], tmp_path: Path, victim: str) -> None:
    rng, killed, runs = stream(SEED, "kills", victim), 0, 0
    while killed < KILLS:
        runs += 1
        killed += one_run(joined, tmp_path / str(runs), VICTIMS[victim], rng, KILLS - killed)
        assert outcome(load(tmp_path / str(runs))) == whole, f"after {killed} kills"
        assert runs <= 5 * KILLS, f"only {killed} kills in {runs} runs"


def one_run(
    joined: Deployment, run: Path, kill: Callable[[Deployment, Generator], bool], rng: Generator, most: int
) -> int:
    """A whole run with kills at random moments, resumed whenever it pauses; how many there were."""
    killed, sittings, begun = 0, 0, time.monotonic()
    while True:
        words = ["resume", run] if (run / "config.toml").exists() else arguments(joined, run, ROUNDS, *PATIENT)
        program = Program(words, run.with_name(f"{run.name}-{sittings}.out"))
        while program.process.poll() is None:
            pause = float(rng.uniform(*PAUSES))
            try:
                program.ends(pause)
            except subprocess.TimeoutExpired:
                if killed < most:
                    killed += kill(joined, rng)
        if program.process.returncode == 0:
            return killed
        # Before there is a run, a server that is away is a plain refusal.
        assert program.process.returncode == 3 or not (run / "config.toml").exists(), program.text()
        assert time.monotonic() - begun < 4 * LONG, program.text()
        sittings += 1
        wait_for(lambda: "ready:" in joined.server.text(), 120)
        time.sleep(5)
