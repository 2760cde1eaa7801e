"""Following an event log: only what was appended is read, and a log that was cut back is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from atoll.errors import RunDamaged
from atoll.run import following
from atoll.run.following import EventFollower
from refusals import refused


def line(number: int, **more: object) -> str:
    return json.dumps({"round": number, "metrics": {}, **more}) + "\n"


def append(folder: Path, text: str) -> None:
    with open(folder / "events.jsonl", "a") as file:
        file.write(text)


def rounds(follower: EventFollower) -> list[int]:
    return [event["round"] for event in follower.look().events]


def test_each_look_gives_what_was_appended(tmp_path: Path) -> None:
    follower = EventFollower(tmp_path)
    assert rounds(follower) == [] and not follower.look().restart, "the run has not begun"
    append(tmp_path, line(1) + line(2))
    assert rounds(follower) == [1, 2]
    assert rounds(follower) == []
    append(tmp_path, line(3))
    assert rounds(follower) == [3]


def test_an_incomplete_line_waits_for_its_end(tmp_path: Path) -> None:
    follower = EventFollower(tmp_path)
    text = line(1)
    append(tmp_path, text[:9])
    assert rounds(follower) == []
    append(tmp_path, text[9:])
    assert rounds(follower) == [1]


def test_only_appended_bytes_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = EventFollower(tmp_path)
    append(tmp_path, line(1, padding="x" * 5000))
    follower.look()
    parsed: list[bytes] = []
    monkeypatch.setattr(EventFollower, "_event", lambda self, text: parsed.append(text) or json.loads(text))
    append(tmp_path, line(2))
    assert rounds(follower) == [2] and [len(text) for text in parsed] == [len(line(2)) - 1]


def test_a_log_that_was_cut_back_begins_again(tmp_path: Path) -> None:
    follower = EventFollower(tmp_path)
    append(tmp_path, line(1) + line(2) + line(3))
    follower.look()
    (tmp_path / "events.jsonl").write_text(line(1))
    found = follower.look()
    assert found.restart and [event["round"] for event in found.events] == [1]


def test_a_log_that_was_cut_back_and_grew_again_is_noticed_by_its_last_line(tmp_path: Path) -> None:
    follower = EventFollower(tmp_path)
    append(tmp_path, line(1) + line(2, wall_seconds=1.5))
    follower.look()
    (tmp_path / "events.jsonl").write_text(line(1) + line(2, wall_seconds=9.5) + line(3))
    found = follower.look()
    assert found.restart and [event["round"] for event in found.events] == [1, 2, 3]


def test_a_log_that_disappears_begins_again(tmp_path: Path) -> None:
    follower = EventFollower(tmp_path)
    append(tmp_path, line(1))
    follower.look()
    (tmp_path / "events.jsonl").unlink()
    assert follower.look().restart


def test_a_long_log_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "CHUNK", 100)
    append(tmp_path, "".join(line(number) for number in range(1, 21)) + line(21, padding="x" * 500))
    follower, found, looks = EventFollower(tmp_path), [], 0
    while True:
        one = follower.look()
        found += [event["round"] for event in one.events]
        looks += 1
        if not one.more:
            break
    assert found == list(range(1, 22)) and looks > 5


@pytest.mark.parametrize("text", ["{not json}\n", "[1]\n", '{"round": "x"}\n', "\xff\xfe\n"])
def test_a_line_that_is_no_event_is_damage(tmp_path: Path, text: str) -> None:
    append(tmp_path, line(1))
    (tmp_path / "events.jsonl").write_bytes((tmp_path / "events.jsonl").read_bytes() + text.encode("latin-1"))
    with refused(RunDamaged, "file-damaged"):
        EventFollower(tmp_path).look()
