"""All runs below a folder, looked at in the background several times a second."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.dashboard.followed import FollowedRun, identifier

LOOK_EVERY = 0.12  # seconds between looks at the event logs
SCAN_EVERY = 2.0  # seconds between searches for new runs
DEEPEST = 5  # folders below the root
MOST = 2000  # runs
INSIDE = {"checkpoints", "models", "journal", "figures", "tensorboard", "explained", "mlruns"}  # folders within a run


def run_folders(root: Path) -> Iterator[Path]:
    """Folders that are runs, or look like one: they hold config.toml, manifest.json or events.jsonl. Links are not
    followed, so that nothing outside the root is shown."""
    waiting = [(root, 0)]
    while waiting:
        folder, depth = waiting.pop(0)
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            continue
        names = {entry.name for entry in entries}
        if names & {"config.toml", "manifest.json", "events.jsonl"}:
            yield folder
            continue
        if depth < DEEPEST:
            below = [entry for entry in entries if entry.is_dir(follow_symlinks=False)]
            waiting += [
                (folder / entry.name, depth + 1)
                for entry in below
                if not entry.name.startswith(".") and entry.name not in INSIDE
            ]


class Monitor:
    """Follows every run below `root`; `expected` are runs that will begin soon."""

    def __init__(self, root: Path, expected: Sequence[Path] = ()) -> None:
        self.root = root
        self._expected = [path.absolute() for path in expected]
        self._runs: dict[str, FollowedRun] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._scanned = -SCAN_EVERY
        self.version = 0  # of the list of runs: it changes when a run appears, disappears or changes

    def start(self) -> None:
        self._thread = threading.Thread(target=self._work, name="atoll-dashboard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def run(self, name: str) -> FollowedRun | None:
        return self._runs.get(name)

    def runs(self) -> list[FollowedRun]:
        """Those that changed last come first."""
        return sorted(self._runs.values(), key=lambda run: (-run.seconds, run.name))

    def look(self) -> None:
        """One look at everything."""
        if time.monotonic() - self._scanned >= SCAN_EVERY:
            self._scan()
            self._scanned = time.monotonic()
        for run in list(self._runs.values()):
            if self._stop.is_set():
                return
            if run.refresh():
                self.version += 1

    def _work(self) -> None:
        while not self._stop.wait(LOOK_EVERY):
            self.look()

    def _scan(self) -> None:
        found = dict.fromkeys([*self._expected, *(path.absolute() for path in _first(run_folders(self.root)))])
        wanted = {identifier(path): path for path in found}
        for name in set(self._runs) - set(wanted):
            del self._runs[name]
            self.version += 1
        for name, path in wanted.items():
            if name not in self._runs:
                self._runs[name] = FollowedRun(path, self._name(path))
                self.version += 1

    def _name(self, path: Path) -> str:
        """The path below the root; of the root itself its own name."""
        try:
            below = str(path.relative_to(self.root.absolute()))
        except ValueError:
            below = path.name
        return path.name if below in ("", ".") else below


def _first(folders: Iterator[Path]) -> Iterator[Path]:
    for number, folder in enumerate(folders):
        if number >= MOST:
            return
        yield folder
