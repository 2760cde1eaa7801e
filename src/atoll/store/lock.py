"""Locks: one process at a time for a run directory, a federation's server, or a site's node.

The kernel holds the lock, so it is released when its owner is killed.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from atoll.errors import AtollError, RunLocked, SiteError, UserError

QUERY_SECONDS = 1.0  # a shared lock held longer than this is not a query of `owner`, and counts as an owner


class Lock:
    """Acquired on construction; released by `release`, by the end of a `with` block or by the end of the process.

    If another process holds it, `refusal` builds the error from a description of that process.
    """

    def __init__(self, folder: Path, refusal: Callable[[str], AtollError]) -> None:
        self._file = _open(folder / "lock", os.O_RDWR | os.O_CREAT)
        if not _take(self._file):
            name = _name(self._file)
            self._file.close()
            raise refusal(name)
        self._file.truncate(0)
        self._file.write(json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode())

    def release(self) -> None:
        self._file.close()

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def lock_run(folder: Path) -> Lock:
    """The lock of a run directory; `RunLocked` if another process is working on the run."""
    hint = "is working on this run; wait for it or choose another --out"
    return Lock(folder, lambda name: RunLocked(f"{folder}: {name} {hint}", code="run-locked"))


def hold(folder: Path, what: str) -> Lock:
    """The lock of a server or node, described by `what`; `SiteError` if it is already running."""
    text = f"{what} is already running"
    return Lock(folder, lambda name: SiteError(f"{text} ({name}); stop that one first", code="already-running"))


def owner(folder: Path) -> str | None:
    """A description of the process that holds the folder's lock, or None."""
    try:
        with _open(folder / "lock", os.O_RDONLY) as file:
            return None if _try(file, fcntl.LOCK_SH) else _name(file)
    except (OSError, UserError):
        return None


def _open(path: Path, flags: int) -> FileIO:
    """Open the file without following a symbolic link, because the owner writes to it, or waiting for a pipe."""
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as problem:
        if problem.errno == errno.ELOOP and path.is_symlink():
            raise UserError(
                f"{path}: it is a symbolic link, but must be a file; remove it", code="lock-is-a-link"
            ) from None
        raise
    return FileIO(descriptor, "r+" if flags & os.O_RDWR else "r")


def _take(file: FileIO) -> bool:
    """Whether this process holds the lock now. A lock that can be shared is held by a query, which ends at once."""
    end = time.monotonic() + QUERY_SECONDS
    while not _try(file, fcntl.LOCK_EX):
        if not _try(file, fcntl.LOCK_SH) or time.monotonic() > end:
            return False
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(0.001)
    return True


def _try(file: FileIO, kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _name(file: FileIO) -> str:
    file.seek(0)
    try:
        found = json.loads(file.read())
        return f"process {found['process']} on {found['host']}"
    except (ValueError, KeyError, TypeError):
        return "another process"
