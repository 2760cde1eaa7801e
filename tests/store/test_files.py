"""A file is the old one or the new one, never half of each."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.store.files import remove_temporary_files, replace_file


def test_replacing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two" and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failure_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    path = tmp_path / "file"
    replace_file(path, b"one")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, b"two")
    assert path.read_bytes() == b"one"


def test_the_content_is_on_the_disk_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda handle: (calls.append("fsync"), fsync(handle)))
    monkeypatch.setattr(os, "replace", lambda one, two: (calls.append("replace"), replace(one, two)))
    replace_file(tmp_path / "file", b"one")
    assert calls == ["fsync", "replace", "fsync"]  # file, name, folder


def test_a_link_in_place_of_the_file_or_of_its_temporary_one_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_bytes(b"content")
    for name in ("file", ".file.new"):
        (tmp_path / name).symlink_to(precious)
        replace_file(tmp_path / "file", b"new")
        assert not (tmp_path / "file").is_symlink() and (tmp_path / "file").read_bytes() == b"new"
        (tmp_path / "file").unlink()
    assert precious.read_bytes() == b"content"


def test_only_our_own_leftovers_are_swept(tmp_path: Path) -> None:
    for name in (".file.new", "file.new", ".hidden", "file"):
        (tmp_path / name).touch()
    remove_temporary_files(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"file.new", ".hidden", "file"}
