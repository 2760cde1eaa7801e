"""Disks on which things go wrong: power that is lost at any step, and writes that fail at any step.

A step is a call that changes the disk or makes a change durable: a write, `fsync`, a rename, a removal. Between two
steps a disk may hold, after a loss of power, everything so far; everything but the data that were not synchronised;
neither these data nor names in folders that were not synchronised; or half of the data of the last write.
"""

from __future__ import annotations

import builtins
import os
from pathlib import Path
from typing import Any

import pytest

from atoll.federation import journal
from atoll.store import files

Content = dict[str, bytes]  # of a folder: relative path -> bytes


class PowerLoss:
    """Notes in `states` what a folder may hold if the power is lost before each step of the calls in this process.

    `done` is the user's own mark, noted with each state.
    """

    def __init__(self, patch: pytest.MonkeyPatch, root: Path, links: Path) -> None:
        self.done: Any = None
        self.states: list[tuple[Any, Content]] = []
        self._root, self._links = root, links
        self._synced: dict[int, bytes] = {}  # file -> its data that are durable
        self._names: dict[Path, int] = {}  # durable names -> file
        links.mkdir()
        self._fsync = os.fsync
        patch.setattr(os, "fsync", self._synchronise)
        for owner, name in ((os, "replace"), (Path, "unlink")):
            patch.setattr(owner, name, self._noted(getattr(owner, name)))

    def note(self) -> None:
        now = self._now()
        kept = {path: (self._links / str(file)).read_bytes() for path, file in now.items()}
        data_lost = {path: self._synced.get(file, b"") for path, file in now.items()}
        all_lost = {path: self._synced.get(file, b"") for path, file in self._names.items()}
        half = {path: data[: (len(data_lost[path]) + len(data) + 1) // 2] for path, data in kept.items()}
        for state in (kept, data_lost, all_lost, half):
            plain = {str(path.relative_to(self._root)): data for path, data in state.items()}
            if (self.done, plain) not in self.states[-8:]:
                self.states.append((self.done, plain))

    def _now(self) -> dict[Path, int]:
        """The names of all files. A second name keeps each file's number from being used again."""
        found = {path: path.stat().st_ino for path in self._root.rglob("*") if path.is_file()}
        for path, file in found.items():
            if not (self._links / str(file)).exists():
                os.link(path, self._links / str(file))
        return found

    def _noted(self, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self.note()
            return function(*arguments, **named)

        return call

    def _synchronise(self, handle: int) -> None:
        self.note()
        self._fsync(handle)
        place = Path(os.readlink(f"/proc/self/fd/{handle}"))
        now = self._now()
        if place.is_dir():
            kept = {path: file for path, file in self._names.items() if path.parent != place}
            self._names = kept | {path: file for path, file in now.items() if path.parent == place}
        elif place in now:
            self._synced[now[place]] = place.read_bytes()


def restored(state: Content, folder: Path) -> Path:
    """A folder with what a disk has kept. Empty folders are always kept."""
    for name in ("checkpoints", "models"):
        (folder / name).mkdir(parents=True)
    for name, data in state.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


class Failing:
    """Lets `allowed` steps pass, then every one fails with this error, as on a full or broken disk. A write that fails
    has written the half."""

    def __init__(self, patch: pytest.MonkeyPatch, allowed: int, number: int) -> None:
        self.failed = False
        self._left, self._number = allowed, number
        for owner, name in ((os, "fsync"), (os, "replace"), (Path, "unlink")):
            patch.setattr(owner, name, self._counted(getattr(owner, name)))
        for module in (files, journal):
            patch.setattr(module, "open", self._open(builtins.open), raising=False)
        patch.setattr(os, "fdopen", self._open(os.fdopen))

    def _fails(self) -> bool:
        self._left -= 1
        self.failed = self.failed or self._left < 0
        return self.failed

    def _error(self) -> OSError:
        return OSError(self._number, os.strerror(self._number))

    def _counted(self, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            if self._fails():
                raise self._error()
            return function(*arguments, **named)

        return call

    def _open(self, function: Any) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            return _Opened(function(*arguments, **named), self)

        return call


class _Opened:
    """An open file of which writes may fail."""

    def __init__(self, file: Any, disk: Failing) -> None:
        self._file, self._disk = file, disk

    def write(self, data: bytes) -> int:
        if self._disk._fails():
            self._file.write(data[: len(data) // 2])
            raise self._disk._error()
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
