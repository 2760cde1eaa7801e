"""One process at a time for a federation's server, and one for a site's node on a machine."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from atoll.errors import SiteError


@contextmanager
def hold(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder's lock; the kernel lets go of it when this process dies."""
    with open(folder / "lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SiteError(
                f"{what} is running already ({_owner(folder)}); stop that one first", code="already-running"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def owner(folder: Path) -> int | None:
    """The process that holds the folder's lock, if there is one."""
    try:
        with open(folder / "lock", encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except OSError:
                text = file.read()
                return int(text) if text.isdecimal() else -1
    except OSError:
        return None
    return None


def _owner(folder: Path) -> str:
    text = (folder / "lock").read_text(encoding="utf-8")
    return f"process {text}" if text.isdecimal() else "another process"
