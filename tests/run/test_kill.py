"""Killed at any instant and resumed, a run ends as if nothing had happened: same networks, same weights, same ledger.

SIGKILL is real, and so are the processes. `make soak` does the same with the installed command, at twenty moments.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from atoll.rng import stream
from atoll.run.reader import load
from programs import Ended, loaded, program, rounds_done, run, start, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("loaded")

ROUNDS = 8
SETTINGS = ("fedavg", "--data", "digits", "--clients", 4, "--rounds", ROUNDS, "--set", "data.rows=600", "--quiet")


def outcome(directory: Path) -> dict[str, Any]:
    """Everything in the result but the time it took, every event, and the bits of the weights."""
    found = load(directory)
    result = {key: value for key, value in found.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in found.history]
    digests = [found.load_model(candidate["id"]).weights.whole_digest() for candidate in result["candidates"]]
    return {"result": result, "events": events, "weights": digests}


@pytest.fixture(scope="module")
def whole(loaded: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], float]:  # noqa: F811
    """What an undisturbed run gives, and the seconds it takes."""
    path = tmp_path_factory.mktemp("whole") / "run"
    begin = time.monotonic()
    assert run("run", *SETTINGS, "--workers", 0, "--out", path).code == 0
    seconds = time.monotonic() - begin
    assert len(outcome(path)["events"]) == ROUNDS
    return outcome(path), seconds


def command(path: Path) -> tuple[object, ...]:
    """What a person would type: resume what is a run, begin what is none yet."""
    is_run = (path / "config.toml").exists()
    return ("resume", path, "--quiet") if is_run else ("run", *SETTINGS, "--workers", 0, "--out", path)


@pytest.mark.parametrize("moment", range(4))
def test_killed_once(tmp_path: Path, whole: tuple[dict[str, Any], float], moment: int) -> None:
    """Somewhere in each quarter of the run, a different place on every machine."""
    expected, seconds = whole
    path = tmp_path / "run"
    child = start(*command(path))
    time.sleep(seconds * (moment + float(stream(1, "kill", moment).random())) / 4)
    child.send(signal.SIGKILL)
    assert child.wait().code in (-signal.SIGKILL, 0)
    ended = run(*command(path))
    assert ended.code == 0, ended
    assert outcome(path) == expected


def test_killed_again_and_again(tmp_path: Path, whole: tuple[dict[str, Any], float]) -> None:
    """Each sitting is killed when it has come one round further than the one before."""
    expected, _ = whole
    path = tmp_path / "run"
    codes = []
    for target in range(1, 6):
        child = start(*command(path))
        wait_until(lambda target=target: rounds_done(path) >= target)  # type: ignore[misc]
        child.send(signal.SIGKILL)
        codes.append(child.wait().code)
    assert codes.count(-signal.SIGKILL) >= 1  # on a busy machine a run may be quicker than its killer
    ended = run(*command(path))
    assert ended.code == 0, ended
    assert outcome(path) == expected


@pytest.mark.parametrize("file", ["manifest.json", "config.toml", "result.json", "checkpoints/00000000.json"])
def test_killed_just_when_a_file_appears(tmp_path: Path, whole: tuple[dict[str, Any], float], file: str) -> None:
    expected, _ = whole
    path = tmp_path / "run"
    child = start(*command(path))
    wait_until(lambda: (path / file).exists())
    child.send(signal.SIGKILL)
    child.wait()
    ended = run(*command(path))
    assert ended.code == 0, ended
    assert outcome(path) == expected


def test_with_workers(tmp_path: Path, whole: tuple[dict[str, Any], float]) -> None:
    """Killed with two workers at work, resumed with one: the same bits, and the shared data is not left behind."""
    expected, _ = whole
    path, temporary = tmp_path / "run", tmp_path / "temporary"
    temporary.mkdir()
    for _ in range(5):  # on a busy machine a run may be quicker than its killer
        shutil.rmtree(path, ignore_errors=True)
        child = start("run", *SETTINGS, "--workers", 2, "--out", path, temporary=temporary)
        wait_until(lambda: rounds_done(path) >= 2)
        child.send(signal.SIGKILL)
        if child.wait().code == -signal.SIGKILL:
            break
    else:
        pytest.fail("every run ended before it was killed")
    assert len(list(temporary.iterdir())) == 1
    again = start("resume", path, "--quiet", "--workers", 1, temporary=temporary).wait()
    assert again.code == 0, again
    assert outcome(path) == expected
    assert list(temporary.iterdir()) == []


def finish(process: Any) -> Ended:
    out, err = process.communicate(timeout=300)
    return Ended(process.returncode, out, err)


@pytest.mark.soak
@pytest.mark.parametrize("workers", [0, 2])
def test_the_program_killed_at_twenty_random_moments(tmp_path: Path, workers: int) -> None:
    options = ("fedavg", "--data", "digits", "--rounds", 60, "--quiet", "--workers", workers)
    begin = time.monotonic()
    assert finish(program("run", *options, "--out", tmp_path / "whole")).code == 0
    seconds = time.monotonic() - begin
    expected = outcome(tmp_path / "whole")
    rng = stream(1, "soak", workers)
    killed = 0
    for number in range(20):
        path = tmp_path / str(number)
        process = program("run", *options, "--out", path)
        time.sleep(float(rng.uniform(0, seconds)))
        process.kill()
        killed += finish(process).code == -signal.SIGKILL
        words = ("resume", path, "--quiet") if (path / "config.toml").exists() else ("run", *options, "--out", path)
        ended = finish(program(*words))
        assert ended.code == 0, ended
        assert outcome(path) == expected, f"kill {number}"
    assert killed >= 15


@pytest.mark.soak
def test_two_hundred_kills(tmp_path: Path, whole: tuple[dict[str, Any], float]) -> None:
    expected, seconds = whole
    rng = stream(1, "two hundred")
    for number in range(200):
        path = tmp_path / str(number)
        child = start(*command(path))
        time.sleep(seconds * float(rng.random()))
        child.send(signal.SIGKILL)
        child.wait()
        ended = run(*command(path))
        assert ended.code == 0, ended
        assert outcome(path) == expected, f"kill {number}"


def test_what_is_compared_can_differ(tmp_path: Path, whole: tuple[dict[str, Any], float]) -> None:
    """Another seed gives another outcome in every part: the comparison above is not empty."""
    assert run("run", *SETTINGS, "--workers", 0, "--seed", 2, "--out", tmp_path / "other").code == 0
    other, expected = outcome(tmp_path / "other"), whole[0]
    assert all(json.dumps(other[key]) != json.dumps(expected[key]) for key in expected)
