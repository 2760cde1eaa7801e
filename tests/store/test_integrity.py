"""Sums of event lines and digests of documents."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from atoll.errors import RunDamaged
from atoll.store.integrity import changed_files, checked_lines, digests_of, line, sealed, unsealed
from refusals import refused

PLACE = Path("events.jsonl")
EVENTS = [{"round": 1, "text": "é\ud800\\ud800"}, {"round": 2, "inner": {"a": 1, "sum": "x"}}, {"round": 3}]


def log() -> list[bytes]:
    lines, previous = [], ""
    for event in EVENTS:
        text, previous = line(event, previous)
        lines.append(text)
    return lines


def test_a_line_by_hand() -> None:
    body = b'{"round":1}'
    first = hashlib.blake2b(body, digest_size=8).hexdigest()
    second = hashlib.blake2b(first.encode() + body, digest_size=8).hexdigest()
    assert line({"round": 1}, "") == (b'{"round":1,"sum":"%b"}\n' % first.encode(), first)
    assert line({"round": 1}, first)[1] == second != first


def test_a_log_comes_back_with_its_last_sum() -> None:
    lines = log()
    assert checked_lines(b"".join(lines), PLACE) == (EVENTS, json.loads(lines[-1])["sum"])
    assert checked_lines(b"".join(lines) + b'{"torn', PLACE)[0] == EVENTS
    assert checked_lines(b"", PLACE) == ([], "")


def test_every_change_of_a_log_is_noticed() -> None:
    lines = log()
    whole = b"".join(lines)
    for place in range(len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        with pytest.raises(RunDamaged):
            checked_lines(bytes(changed), PLACE)
    for wrong in ([lines[1], lines[0], lines[2]], [lines[0], lines[2]], lines[1:], [lines[0], *lines]):
        with refused(RunDamaged, "file-damaged", PLACE, "line "):
            checked_lines(b"".join(wrong), PLACE)


def test_lines_of_an_earlier_version_have_no_sums() -> None:
    old = b'{"round":1}\n{"round":2}\n'
    assert checked_lines(old, PLACE) == ([{"round": 1}, {"round": 2}], "")
    text, last = line({"round": 3}, "")
    assert checked_lines(old + text, PLACE) == ([{"round": 1}, {"round": 2}, {"round": 3}], last)
    with refused(RunDamaged, "file-damaged", "line 2"):
        checked_lines(line({"round": 1}, "")[0] + b"{}\n", PLACE)


def test_a_document_carries_its_digest() -> None:
    value = {"a": [1, 2.5, None], "b": {"c": "é"}}
    written = json.loads(json.dumps(sealed(value)))
    assert unsealed(written, PLACE) == value and unsealed(dict(value), PLACE) == value
    with refused(RunDamaged, "wrong-checksum", PLACE):
        unsealed({**written, "a": [1, 2.5, 0]}, PLACE)


def test_changed_files_are_named(tmp_path: Path) -> None:
    for name in ("config.toml", "manifest.json"):
        (tmp_path / name).write_text(name)
    recorded = digests_of(tmp_path)
    assert list(recorded) == ["config.toml", "manifest.json"] and changed_files(tmp_path, recorded, {}) == []
    (tmp_path / "config.toml").write_text("other")
    (tmp_path / "manifest.json").unlink()
    assert changed_files(tmp_path, recorded, {}) == ["config.toml", "manifest.json"]
    assert changed_files(tmp_path, recorded, digests_of(tmp_path)) == ["manifest.json"]
