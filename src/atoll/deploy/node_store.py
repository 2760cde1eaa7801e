"""What a site's node stores on its own disk between tasks: tensors that it received, and the client's memory.

Its worker may be restarted between two tasks, so whatever a task needs is on the disk. Tensors are named by content and
verified when read; a damaged or missing one is requested again. A client's memory is stored in versions, each named by
the task that wrote it: a task names the version that it starts from, so repeating it gives the same reply.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from atoll.core import wire
from atoll.core.messages import Array, Payload, content_name
from atoll.errors import AtollError, WireError
from atoll.store.files import remove_temporary_files, replace_file

RUN_NAME = re.compile(r"[0-9a-f]{8,64}")
DIGEST = re.compile(r"[0-9a-f]{32}")
UNUSED_DAYS = 90  # a run without a task for this long is deleted


class MemoryLost(AtollError):
    """The version of a client's memory that a task starts from is not on this node's disk."""


class TensorFolder(Mapping[str, Array]):
    """Tensors by digest, one file each. Missing and damaged ones count as absent; `missed` lists those looked up.

    What this object has verified stays in memory for as long as its file is there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporary_files(folder)
        self.missed: set[str] = set()
        self._held: dict[str, Array] = {}

    def __getitem__(self, digest: str) -> Array:
        path = self.folder / f"{digest}.npy"
        if digest in self._held and path.exists():
            return self._held[digest]
        if DIGEST.fullmatch(digest):
            try:
                array: Array = np.load(io.BytesIO(path.read_bytes()), allow_pickle=False)
                if content_name(array) == digest:
                    self._held[digest] = array
                    return array
                path.unlink()
            except (OSError, ValueError, EOFError):
                path.unlink(missing_ok=True)
        self.missed.add(digest)
        raise KeyError(digest)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(path.stem for path in self.folder.glob("*.npy")))

    def __len__(self) -> int:
        return sum(1 for _ in self.folder.glob("*.npy"))

    def __bool__(self) -> bool:
        return True  # an empty folder is not the same as no folder: lookups must reach `missed`

    def keep(self, payload: Payload, wanted: Iterable[str]) -> None:
        """Store exactly these tensors: new ones are taken from the payload, all others are deleted."""
        names = set(wanted)
        self._held = {digest: array for digest, array in self._held.items() if digest in names}
        self.folder.mkdir(parents=True, exist_ok=True)
        held = set(self)
        for digest in held - names:
            (self.folder / f"{digest}.npy").unlink(missing_ok=True)
        for owner, name in wire.take_apart(payload).tensors:
            digest = owner.digest(name)
            if digest in names and digest not in held and DIGEST.fullmatch(digest):
                buffer = io.BytesIO()
                np.save(buffer, owner[name], allow_pickle=False)
                aside = self.folder / f".{digest}.new"
                try:
                    aside.write_bytes(buffer.getvalue())  # not flushed: an incomplete file is detected when read
                    os.replace(aside, self.folder / f"{digest}.npy")
                except OSError:  # of a full disk, which must not be made fuller
                    aside.unlink(missing_ok=True)
                    raise
                held.add(digest)
                if content_name(owner[name]) == digest:
                    self._held[digest] = owner[name]


class MemoryFolder:
    """The versions of one client's memory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        remove_temporary_files(folder)

    def read(self, version: int | None) -> Payload:
        """The memory as the task of this number left it; None: a client without memory."""
        if version is None:
            return {}
        try:
            return wire.decode(self._path(version).read_bytes())
        except (OSError, WireError):
            raise MemoryLost(
                f"the memory that task {version} left is no longer on this site's disk", code="memory-lost"
            ) from None

    def write(self, version: int, memory: Payload) -> None:
        """When this returns, the memory is on the disk."""
        replace_file(self._path(version), wire.encode(memory, digests=False))

    def forget_before(self, version: int | None) -> None:
        """Delete older versions: the server will never ask for them again."""
        if version is not None:
            for path in self._folder.glob("*.memory"):
                if int(path.stem) < version:
                    path.unlink(missing_ok=True)

    def _path(self, version: int) -> Path:
        return self._folder / f"{version:010d}.memory"


@contextmanager
def run_folder(root: Path, run: str) -> Iterator[Path]:
    """The folder of one run on this node, locked by one process at a time: a client does one task at a time."""
    if not RUN_NAME.fullmatch(run):
        raise AtollError(f"run {run[:80]!r}: not the name of a run", code="bad-run-name")
    folder = root / "runs" / run
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(folder / "lock", "a+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(folder)
        yield folder


def changed_since(root: Path, digest: str) -> str | None:
    """The day of the last run, if its data had another digest. This one is remembered."""
    path = root / "last_data.json"
    try:
        before, day = map(str, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError):
        before, day = digest, ""
    root.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps([digest, f"{datetime.now(UTC):%Y-%m-%d}"]).encode())
    return None if before == digest else day


def sweep_runs(root: Path, days: float = UNUSED_DAYS) -> None:
    """Delete the folders of runs that have had no task for a long time."""
    limit = time.time() - days * 86400
    for folder in (root / "runs").glob("*"):
        if RUN_NAME.fullmatch(folder.name) and folder.stat().st_mtime < limit:
            shutil.rmtree(folder, ignore_errors=True)
