"""The run directory: never written over, never half a run, events cut back to the checkpoint."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.core.messages import Tensors
from atoll.errors import RunDamaged, RunDirectoryError, RunLocked
from atoll.preparation.value import of_table
from atoll.run.reader import load
from atoll.store import Model, RunDirectory
from atoll.store import directory as directory_module
from refusals import refused

PREPARATION = of_table(["u", "v"], ["no", "yes"])


def create(path: Path) -> RunDirectory:
    return RunDirectory.create(path, "method = 'x'\n", {"method": "x"}, PREPARATION)


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}


def model(number: int) -> Model:
    return Model({"space": "made"}, Tensors({"w": np.full(3, number, np.float32)}), Tensors({}), PREPARATION)


def test_a_new_run_and_its_files(tmp_path: Path) -> None:
    with create(tmp_path / "deep" / "run") as run:
        assert {path.name for path in run.path.iterdir()} == {
            "checkpoints",
            "config.toml",
            "events.jsonl",
            "lock",
            "manifest.json",
            "preparation.json",
            "models",
        }


def test_an_empty_folder_may_be_used(tmp_path: Path) -> None:
    create(tmp_path).close()


@pytest.mark.parametrize("file", ["config.toml", "thesis.doc", ".hidden", "result.json", "models"])
def test_a_used_folder_is_refused_and_left_alone(tmp_path: Path, file: str) -> None:
    (tmp_path / file).write_bytes(b"mine")
    with refused(RunDirectoryError, "folder-not-empty", tmp_path, "--out"):
        create(tmp_path)
    assert content(tmp_path) == {file: b"mine"}


def test_a_used_run_says_how_to_go_on(tmp_path: Path) -> None:
    create(tmp_path).close()
    with refused(RunDirectoryError, "folder-not-empty", f"atoll resume {tmp_path}"):
        create(tmp_path)


def test_a_run_killed_before_it_was_one_is_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped before each of its first writes: the folder is either a run, or may be used for one."""
    original = directory_module.replace_file
    for allowed in range(4):
        path = tmp_path / str(allowed)
        count = [0]

        def stop(target: Path, data: bytes, limit: int = allowed, count: list[int] = count) -> None:
            if count[0] == limit:
                target.with_name(f".{target.name}.new").write_bytes(data[:3])
                raise KeyboardInterrupt
            count[0] += 1
            original(target, data)

        with monkeypatch.context() as patch:
            patch.setattr(directory_module, "replace_file", stop)
            try:
                create(path).close()
            except KeyboardInterrupt:
                create_again = allowed < 3
                patch.undo()
                assert create_again
                create(path).close()
        RunDirectory.reopen(path).close()
        assert load(path).manifest == {"method": "x"}


def unusable(tmp_path: Path) -> list[Path]:
    (tmp_path / "file").touch()
    return [
        tmp_path / "file",
        tmp_path / "file" / "below",
        Path("/proc/no-such-run"),
        tmp_path / "nul\0byte",
        tmp_path / ("x" * 300),
    ]


@pytest.mark.parametrize("number", range(5))
def test_a_folder_that_cannot_be_made_is_a_users_error(tmp_path: Path, number: int) -> None:
    path = unusable(tmp_path)[number]
    with refused(RunDirectoryError, "folder-not-writable", path, "--out") as caught:
        create(path)
    assert "\n" not in str(caught.value)


def test_a_read_only_folder_is_a_users_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may write anywhere, so the system's refusal is played."""

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with refused(RunDirectoryError, "folder-not-writable", tmp_path, "Permission denied", "--out"):
        create(tmp_path)


def test_two_on_one_directory(tmp_path: Path) -> None:
    with create(tmp_path):
        with refused(RunLocked, "run-locked", tmp_path, os.getpid()):
            RunDirectory.reopen(tmp_path)
        with refused(RunDirectoryError, "folder-not-empty", tmp_path):
            create(tmp_path)
    RunDirectory.reopen(tmp_path).close()


def test_what_is_no_run_cannot_be_reopened(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with refused(RunDirectoryError, "not-a-run-directory", path, "config.toml"):
            RunDirectory.reopen(path)
    assert list(tmp_path.iterdir()) == []


def test_events_after_the_checkpoint_are_cut_off(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.event({"round": 1})
        run.checkpoint(1, {"round": 1})
        run.event({"round": 2})
        run.event({"round": 3})
    (tmp_path / "events.jsonl").open("ab").write(b'{"round": 4, "torn')
    assert [event["round"] for event in load(tmp_path).history] == [1, 2, 3]
    with RunDirectory.reopen(tmp_path) as run:
        assert run.last_checkpoint() == {"round": 1}
        assert [event["round"] for event in load(tmp_path).history] == [1]
        run.event({"round": 2})
    assert [event["round"] for event in load(tmp_path).history] == [1, 2]


def test_without_a_checkpoint_all_events_go(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.event({"round": 1})
    with RunDirectory.reopen(tmp_path) as run:
        assert run.last_checkpoint() is None
    assert load(tmp_path).history == []


def test_events_that_were_lost_are_noticed(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.event({"round": 1})
        run.checkpoint(1, {"round": 1})
    (tmp_path / "events.jsonl").unlink()
    with RunDirectory.reopen(tmp_path) as run, refused(RunDamaged, "events-too-short", "events.jsonl"):
        run.last_checkpoint()


def test_a_damaged_event_is_noticed(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.event({"round": 1})
        run.event({"round": 2})
    path = tmp_path / "events.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"round":1', b'"round"?1'))
    with refused(RunDamaged, "file-damaged", tmp_path, "events.jsonl"):
        _ = load(tmp_path).history


def test_offers_are_kept_for_slow_readers_and_then_removed(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        for number in range(12):
            run.snapshots({"high": model(number), "knee": model(0)}, number)
        pointer: dict[str, Any] = json.loads((tmp_path / "models" / "current.json").read_text())
        assert pointer["round"] == 11 and pointer["models"].keys() == {"high", "knee"}
        files = list((tmp_path / "models").glob("*.safetensors"))
        assert len(files) == 9  # the last eight, and the knee that never changed
        assert load(tmp_path).load_model("high").weights["w"][0] == 11
        assert load(tmp_path).load_model("knee").weights["w"][0] == 0


def test_a_new_plan_replaces_the_settings(tmp_path: Path) -> None:
    with create(tmp_path) as run:
        run.reconfigure("method = 'y'\n")
    assert (tmp_path / "config.toml").read_text() == "method = 'y'\n"
