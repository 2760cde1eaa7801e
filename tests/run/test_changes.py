"""Files of a run that are changed, broken, replaced by links or damaged: every change is named or harmless."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.config import resolve
from atoll.errors import AtollError, Paused, RunDamaged, RunDirectoryError
from atoll.rng import Generator, stream
from atoll.run import launch
from atoll.run.reader import load
from atoll.testing import made_table
from programs import loaded  # noqa: F401 (a fixture)
from programs import run as run_command
from refusals import refused

DATA = made_table(clients=4)
SHORT: dict[str, Any] = {"rounds": 4, "workers": 0}


def begin(path: Path, stop_after: int, **engine: Any) -> None:
    """A run that is asked to stop after so many rounds."""
    raw = {"method": "fedavg", "data": {"name": "in-memory"}, "engine": {"workers": 0, **engine}}
    with refused(Paused, "run-stopped", f"{stop_after} of 4"):
        experiment = resolve({**raw, "fedavg": {"rounds": 4}})
        launch.start(experiment, path, data=DATA, stop=lambda: len(load(path).rounds) >= stop_after)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("finished") / "run"
    atoll.search("fedavg", DATA, out=path, **SHORT)
    return path


@pytest.mark.parametrize("name", ["config.toml", "manifest.json", "preparation.json"])
def test_an_edited_file_is_named_and_may_be_accepted(tmp_path: Path, name: str) -> None:
    path = tmp_path / "run"
    begin(path, 1)
    text = (path / name).read_text()
    (path / name).write_text(text.replace("seed = 1", "seed = 2") if name == "config.toml" else text + "\n")
    with refused(RunDirectoryError, "file-changed", path, name, "--accept-changes"):
        atoll.resume(path, data=DATA)
    run = launch.resume(path, data=DATA, accept_changes=True)
    assert run.finished and run.changed_files == []


def test_settings_that_atoll_replaced_are_no_change(tmp_path: Path) -> None:
    """A run that goes further than was planned, and is killed before its next checkpoint."""
    path = tmp_path / "run"
    begin(path, 2)
    older = {file: file.read_bytes() for file in (path / "checkpoints").iterdir()}
    stop = lambda: True  # noqa: E731
    with refused(Paused, "run-stopped"):
        launch.resume(path, data=DATA, rounds=6, stop=stop)
    for file in (path / "checkpoints").iterdir():
        file.unlink()
    for file, data in older.items():
        file.write_bytes(data)
    assert len(atoll.resume(path, data=DATA).rounds) == 6
    (path / "config.toml").write_text((path / "config.toml").read_text() + "# edited\n")
    assert load(path).changed_files == ["config.toml"]
    assert any("config.toml was changed" in text for text in load(path).problems)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", "[" * 5000])
@pytest.mark.parametrize("name", ["result.json", "manifest.json"])
def test_a_broken_file_is_one_line(
    tmp_path_factory: pytest.TempPathFactory, finished: Path, name: str, text: str
) -> None:
    path = tmp_path_factory.mktemp("broken") / "run"
    shutil.copytree(finished, path)
    (path / name).write_text(text)
    with pytest.raises(RunDamaged, match=name):
        atoll.resume(path, data=DATA, rounds=5)
    with pytest.raises(RunDamaged, match=name):
        run = load(path)
        _ = run.problems, repr(run), run.recommended


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("result.json", '"picks": [', '"picks": [[],'),
        ("result.json", '"clients": {', '"clients": {"x": 5,'),
        ("preparation.json", '"classes": [', '"classes": 5, "x": ['),
    ],
)
@pytest.mark.usefixtures("loaded")
def test_a_file_that_was_edited_by_hand_is_one_line_on_the_command_line(
    tmp_path: Path, finished: Path, name: str, old: str, new: str
) -> None:
    """JSON of another form, without a digest in the file itself."""
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    text = re.sub(r',\s*"digest": "[0-9a-f]*"', "", (path / name).read_text())
    assert old in text
    (path / name).write_text(text.replace(old, new))
    ended = run_command("show", path, *(["--classes"] if name == "preparation.json" else []))
    assert ended.code == 4 and ended.err.count("\n") == 1 and name in ended.err and "file-damaged" in ended.err


def test_a_symbolic_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with refused(RunDirectoryError, "run-is-a-link", tmp_path / "link"):
        atoll.search("fedavg", DATA, out=tmp_path / "link", **SHORT)
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_link_in_place_of_a_folder_or_of_a_file_that_grows_is_refused(tmp_path: Path) -> None:
    path, away = tmp_path / "run", tmp_path / "away"
    begin(path, 1, deadline=1000)  # with a journal
    (path / "privacy.jsonl").touch()
    (segment, *_) = sorted((path / "journal").iterdir())
    for place in ("models", "checkpoints", "journal", "events.jsonl", "privacy.jsonl", f"journal/{segment.name}"):
        (path / place).rename(away)
        (path / place).symlink_to(away)
        with refused(RunDirectoryError, "run-is-a-link", path / place):
            atoll.resume(path, data=DATA)
        (path / place).unlink()
        away.rename(path / place)


def noticed(path: Path) -> bool:
    """Whether reading the run and its networks, or its list of problems, shows that a file is not as it was."""
    try:
        run = load(path)
        _ = run.result, run.history, run.classes
        for entry in run.result["candidates"]:
            run.load_model(entry["id"])
        return any("changed or removed" in text for text in run.problems)
    except RunDamaged:
        return True


def content(path: Path) -> Any:
    run = load(path)
    return run.result, run.history, run.classes, run.manifest


def test_flipped_bits_are_noticed_or_harmless(tmp_path: Path, finished: Path) -> None:
    """In every file that a reader of a finished run uses, at random places."""
    path = tmp_path / "run"
    shutil.copytree(finished, path)
    assert not noticed(path)
    before, rng = content(path), stream(1, "flips")
    files = ["result.json", "events.jsonl", "manifest.json", "preparation.json", "config.toml"]
    files += [str(file.relative_to(path)) for file in (path / "models").glob("*.safetensors")][:1]
    for name in files:
        data = (path / name).read_bytes()
        for _ in range(20):
            flipped = bytearray(data)
            flipped[rng.integers(len(data))] ^= 1 << int(rng.integers(8))
            (path / name).write_bytes(flipped)
            assert noticed(path) or content(path) == before, name
        (path / name).write_bytes(data[: len(data) // 2])
        assert noticed(path), name
        (path / name).write_bytes(data)
    assert not noticed(path)


# -- corruptions of every file -------------------------------------------------------------------------------------


def corrupt(path: Path, kind: str, rng: Generator) -> None:
    """One accident to a file, or something else in its place."""
    data = path.read_bytes()
    place = int(rng.integers(max(1, len(data))))
    if kind == "flip" and data:
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(changed)
    elif kind in ("zeros", "junk"):
        length = len(data[place : place + 64])
        new = bytes(length) if kind == "zeros" else rng.bytes(length)
        path.write_bytes(data[:place] + new + data[place + 64 :])
    elif kind in ("cut", "longer", "empty", "deep"):
        deep = b"{'a':".replace(b"'", b'"') + b"[" * 100_000
        path.write_bytes({"cut": data[:place], "longer": data + rng.bytes(16), "empty": b"", "deep": deep}[kind])
    elif kind == "huge":
        os.truncate(path, 2**43)
    elif kind != "flip":
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "endless":
            path.symlink_to("/dev/zero")


ACCIDENTS = ("flip", "zeros", "junk", "cut", "longer", "empty", "deleted")
HOSTILE = ("deep", "huge", "pipe", "folder", "endless")


def files_of(path: Path) -> list[str]:
    """Every file of a run directory but its lock, which holds nothing."""
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file() and file.name != "lock")


def ended_as(copy: Path) -> Any:
    """What a copy of a stopped run gives that is resumed; an error if it is refused, in one line on the command line.
    Where a file is to be replaced and a folder is in its place, it is the system's own."""
    try:
        run = atoll.resume(copy, data=DATA)
    except (AtollError, IsADirectoryError) as problem:
        return problem
    return [event["metrics"] for event in run.rounds], [c["objectives"] for c in run.result["candidates"]]


def corrupt_all(folder: Path, number: int, kinds: tuple[str, ...]) -> dict[str, int]:
    """Corrupt files of a stopped run, which is then resumed, and of a finished one, which is then read, in turn: each
    corruption is an error of one line, is named among the problems, or changes nothing."""
    stopped, done = folder / "stopped", folder / "done"
    begin(stopped, 2, deadline=1000)  # with a journal
    atoll.search("fedavg", DATA, out=done, **SHORT)
    shutil.copytree(stopped, folder / "whole")
    expected, before = ended_as(folder / "whole"), content(done)
    assert not isinstance(expected, Exception) and not noticed(done)
    rng, counts = stream(1, "corruptions"), dict.fromkeys(("refused", "named", "harmless"), 0)
    for turn in range(number):
        source = stopped if turn % 2 else done
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(source, copy)
        files = files_of(copy)
        name = files[(turn // 2) % len(files)]
        kind = kinds[int(rng.integers(len(kinds)))]
        corrupt(copy / name, kind, rng)
        if source is stopped:
            found = ended_as(copy)
            refused_it = isinstance(found, Exception)
            assert refused_it or found == expected, (name, kind)
            assert not refused_it or "\n" not in str(found)
            counts["refused" if refused_it else "harmless"] += 1
        else:
            seen = noticed_or_refused(copy)
            assert seen or content(copy) == before, (name, kind)
            counts["named" if seen else "harmless"] += 1
    return counts


def noticed_or_refused(path: Path) -> bool:
    try:
        return noticed(path)
    except AtollError:  # such as a folder that is no run any more
        return True


@pytest.mark.parametrize("kinds", [ACCIDENTS, HOSTILE], ids=["accidents", "hostile"])
def test_some_corruptions_of_every_file_are_noticed_or_harmless(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    assert sum(corrupt_all(tmp_path, 40, kinds).values()) == 40


@pytest.mark.soak
def test_five_hundred_corruptions_are_noticed_or_harmless(tmp_path: Path) -> None:
    counts = corrupt_all(tmp_path, 500, (*ACCIDENTS, *HOSTILE))
    print(counts)
    assert sum(counts.values()) == 500
