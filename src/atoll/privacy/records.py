"""The file of an account: lines that are only ever added, each with a digest of all lines up to it.

A line that was changed, taken out or put elsewhere is noticed when the file is read. Lines that are missing at the end
are noticed where a `position` was recorded before, as in a checkpoint.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from atoll.errors import RunDamaged
from atoll.store.files import read_file, sync_folder

Line = dict[str, Any]


class Records:
    """Lines of one file, which stays open. Without a path nothing is written."""

    def __init__(self, path: Path | None) -> None:
        self.lines: list[Line] = []  # what the file had when it was opened
        self._path, self._file = path, None
        self._chain: list[str] = []  # the digest after each line
        self._unwritten: list[str] = []
        self._torn: int | None = None  # where the file ended before a write that failed
        if path is not None:
            self._read(path)
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (open as long as the account)
            sync_folder(path.parent)

    def add(self, line: Line) -> None:
        """Add a line; see `flush`."""
        text = json.dumps(line, separators=(",", ":"))
        self._chain.append(_linked(self._last, text))
        self._unwritten.append(f'{text[:-1]},"chain":"{self._last}"}}\n')

    def flush(self) -> None:
        """When this returns, all lines are on the disk. If it raises an `OSError`, they are forgotten, and what they
        stand for must not leave."""
        lines, self._unwritten = self._unwritten, []
        if self._file is None or not lines:
            return
        data = "".join(lines).encode()
        try:
            if self._torn is not None:
                os.ftruncate(self._file.fileno(), self._torn)
            self._torn = os.fstat(self._file.fileno()).st_size
            while data:
                data = data[self._file.write(data) :]
            os.fsync(self._file.fileno())
        except OSError:
            del self._chain[-len(lines) :]
            raise
        self._torn = None

    def position(self) -> list[Any]:
        """How many lines there are, and the digest of all of them."""
        return [len(self._chain), self._last]

    def refuse_missing(self, position: list[Any]) -> None:
        """Raise `RunDamaged` unless the file still has what it had at this position."""
        count, digest = position
        if len(self._chain) < count or (count and self._chain[count - 1] != digest):
            found = len(self._chain)
            raise _damaged(self._path, f"a checkpoint knows of {count} lines; the file has {found}, or other ones")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def _last(self) -> str:
        return self._chain[-1] if self._chain else ""

    def _read(self, path: Path) -> None:
        """The lines. One that was being written at a kill is of a task that was not sent: it is cut off."""
        if not path.exists():
            return
        data = read_file(path)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)
        for number, text in enumerate(data[:whole].splitlines(), 1):
            try:
                line = json.loads(text)
                given = line.pop("chain")
            except (ValueError, KeyError, AttributeError, TypeError) as problem:
                raise _damaged(path, f"line {number}: {problem!r}") from None
            self._chain.append(_linked(self._last, json.dumps(line, separators=(",", ":"))))
            if given != self._last:
                raise _damaged(path, f"line {number} does not follow the lines before it")
            self.lines.append(line)


def _linked(before: str, text: str) -> str:
    return hashlib.blake2b(f"{before}{text}".encode(), digest_size=8).hexdigest()


def _damaged(path: Path | None, what: str) -> RunDamaged:
    return RunDamaged(
        f"{path}: damaged ({what}); what was spent is not known, so nothing more is released; restore it from a copy",
        code="privacy-account-damaged",
    )
