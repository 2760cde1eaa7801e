"""One process per run directory. The kernel holds the lock, so a killed owner never leaves it behind."""

from __future__ import annotations

import fcntl
import json
import os
import socket
from pathlib import Path
from typing import IO

from atoll.errors import RunLocked


class Lock:
    """Taken when made, let go by `release` or by the death of the process."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[str] = open(folder / "lock", "a+", encoding="utf-8")  # noqa: SIM115 (held while the run lasts)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = self._owner()
            self._file.close()
            raise RunLocked(
                f"{folder}: {owner} is working on this run; wait for it or choose another --out", code="run-locked"
            ) from None
        self._file.seek(0)
        self._file.truncate()
        json.dump({"process": os.getpid(), "host": socket.gethostname()}, self._file)
        self._file.flush()

    def release(self) -> None:
        self._file.close()

    def _owner(self) -> str:
        self._file.seek(0)
        try:
            owner = json.load(self._file)
            return f"process {owner['process']} on {owner['host']}"
        except (ValueError, KeyError, TypeError):
            return "another process"
