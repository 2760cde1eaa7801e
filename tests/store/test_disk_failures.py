"""Power lost, a disk full or broken at any step of writing a run: it goes on from the last checkpoint or the next."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.core.messages import Tensors
from atoll.errors import AtollError
from atoll.preparation.value import of_table
from atoll.run import launch
from atoll.run.reader import Run
from atoll.store import Model, RunDirectory
from atoll.testing import made_table
from disks import Failing, PowerLoss, restored

PREPARATION = of_table(["u", "v"], ["no", "yes"])
BIG = Tensors({"big": np.arange(5000, dtype=np.float32)})
ROUNDS = 3


def value(number: int) -> dict[str, Any]:
    return {"round": number, "master": BIG, "own": Tensors({"own": np.full(10, number, np.float32)})}


def play_round(run: RunDirectory, number: int) -> None:
    weights = Tensors({"w": np.full(3, number, np.float32)})
    run.snapshots({"high": Model({"space": "made"}, weights, Tensors({}), PREPARATION)}, number)
    run.event({"round": number})
    run.checkpoint(number, value(number))


def created(path: Path) -> RunDirectory:
    return RunDirectory.create(path, "method = 'x'\n", {"method": "x"}, PREPARATION)


def checkpoint_of(path: Path) -> int:
    """The number of the checkpoint that a run goes on from; 0: from its start. Its content, and the log, must fit."""
    with RunDirectory.reopen(path) as run:
        found = run.last_checkpoint()
        assert [event["round"] for event in run.events()] == list(range(1, 1 + (found or {"round": 0})["round"]))
        if found is None:
            return 0
        number = int(found["round"])
        assert np.array_equal(found["master"]["big"], BIG["big"])
        assert np.array_equal(found["own"]["own"], np.full(10, number, np.float32))
        return number


def test_power_lost_at_any_step_of_three_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    path.mkdir()
    with monkeypatch.context() as patch:
        disk = PowerLoss(patch, path, tmp_path / "links")
        disk.done = -1  # not a run yet
        with created(path) as run:
            for number in range(1, ROUNDS + 1):
                disk.done = number - 1
                play_round(run, number)
            disk.done = ROUNDS
            disk.note()
    assert len(disk.states) > 100
    seen = set()
    for number, (done, state) in enumerate(disk.states):
        folder = restored(state, tmp_path / f"after-{number}")
        if "config.toml" not in state:
            assert done == -1
            shutil.rmtree(folder / "checkpoints")
            shutil.rmtree(folder / "models")
            created(folder).close()
            continue
        found = checkpoint_of(folder)
        assert found in (max(done, 0), done + 1), (done, found, sorted(state))
        seen.add((done, found))
    assert {(done, done + more) for done in range(ROUNDS) for more in (0, 1)} | {(ROUNDS, ROUNDS)} <= seen


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_write_of_a_round_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    for allowed in range(1000):
        path = tmp_path / str(allowed)
        with created(path) as run:
            play_round(run, 1)
        with monkeypatch.context() as patch:
            disk = Failing(patch, allowed, number)
            try:
                with RunDirectory.reopen(path) as run:
                    run.last_checkpoint()
                    play_round(run, 2)
            except OSError as problem:
                assert problem.errno == number
        assert checkpoint_of(path) in ((1, 2) if disk.failed else (2,))
        if not disk.failed:
            assert allowed > 15
            return
    raise AssertionError("a round never ended")


def test_a_full_disk_leaves_no_lock(tmp_path: Path) -> None:
    """The line that could not be written is tried again when the log is closed, which fails, too."""
    run = created(tmp_path / "run")
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, run._events.fileno())
    os.close(full)
    with pytest.raises(OSError, match="No space"), run:
        run.event({"round": 1})
    assert checkpoint_of(tmp_path / "run") == 0


# -- whole runs --------------------------------------------------------------------------------------------------------

DATA = made_table(clients=4)
SHORT: dict[str, Any] = {"rounds": ROUNDS, "workers": 0, "settings": {"engine": {"deadline": 1000.0}}}  # with a journal


def outcome(run: Run) -> Any:
    result = {key: value for key, value in run.result.items() if key not in ("wall_seconds", "digests")}
    weights = [run.load_model(candidate["id"]).weights.whole_digest() for candidate in run.result["candidates"]]
    return result, [event["metrics"] for event in run.rounds], weights


def gone_on(path: Path) -> Any:
    if (path / "config.toml").exists():
        return outcome(launch.resume(path, data=DATA))
    shutil.rmtree(path)
    return outcome(atoll.search("fedavg", DATA, out=path, **SHORT))


@pytest.mark.soak
def test_power_lost_at_any_step_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run"
    path.mkdir()
    with monkeypatch.context() as patch:
        disk = PowerLoss(patch, path, tmp_path / "links")
        expected = outcome(atoll.search("fedavg", DATA, out=path, **SHORT))
        disk.note()
    for _, state in disk.states:
        folder = restored(state, tmp_path / "after")
        assert gone_on(folder) == expected
        shutil.rmtree(folder)
    print(f"{len(disk.states)} states of the disk")


@pytest.mark.soak
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_every_write_of_a_run_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    expected = outcome(atoll.search("fedavg", DATA, out=tmp_path / "whole", **SHORT))
    for allowed in range(10_000):
        path = tmp_path / "run"
        with monkeypatch.context() as patch:
            disk = Failing(patch, allowed, number)
            try:
                atoll.search("fedavg", DATA, out=path, **SHORT)
            except (OSError, AtollError) as problem:
                assert os.strerror(number) in str(problem)
        if path.exists():
            assert gone_on(path) == expected
            shutil.rmtree(path)
        if not disk.failed:
            print(f"{allowed} steps")
            return
    raise AssertionError("a run never ended")
