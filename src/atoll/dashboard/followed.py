"""One run that the dashboard follows: what it has read so far, and whether that changed."""

from __future__ import annotations

import hashlib
import threading
import time
from dataclasses import replace
from pathlib import Path

from atoll.errors import AtollError, RunDirectoryError
from atoll.report.view import NOT_AS_WRITTEN, RunView, view_of
from atoll.run.digest import RunDigest
from atoll.run.following import EventFollower
from atoll.run.reader import Run, load
from atoll.store.lock import owner

OWNER_EVERY = 1.0  # seconds between looks at a run's lock


def identifier(path: Path) -> str:
    """The name of a run in addresses: it says nothing of the path, and no address can name another file."""
    return hashlib.sha256(str(path.absolute()).encode("utf-8", "surrogatepass")).hexdigest()[:16]


class FollowedRun:
    """A run directory, or what looks like one. `refresh` reads what was appended; `version` counts the changes."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name, self.id = path, name, identifier(path)
        self.version = 0
        self.state = "reading"  # then running, finished, stopped, damaged, foreign, waiting (it has not begun)
        self.reason = ""  # why it is damaged or foreign
        self.seconds = 0.0  # when its files last changed
        self.lock = threading.Lock()
        self._run: Run | None = None
        self._follower = EventFollower(path)
        self._digest = RunDigest()
        self._view: RunView | None = None
        self._looked = 0.0
        self._result: tuple[int, int] | None = None  # time and size of result.json at the last look
        self._refused: tuple[object, ...] | None = None  # the files that could not be read, until one changes

    @property
    def view(self) -> RunView | None:
        """The run as it was at the last refresh; None while there is nothing to show."""
        return self._view

    def refresh(self) -> bool:
        """Look at the files; whether something changed. Never raises: what cannot be read is a state and a reason."""
        with self.lock:
            before = (self.state, self.reason, self.version)
            if self._refused is not None and self._refused == self._files():
                return False
            try:
                self._refused = None
                self._look()
            except RunDirectoryError as problem:
                self._give_up("foreign", problem)
            except (AtollError, OSError, *NOT_AS_WRITTEN) as problem:
                self._give_up("damaged", problem)
            if (self.state, self.reason) != before[:2] and self.version == before[2]:
                self.version += 1
            return self.version != before[2]

    def _look(self) -> None:
        if not (self.path / "config.toml").exists():
            self.state = "waiting" if self._run is None and not self.path.exists() else self.state
            if self.state in ("reading", "waiting") and self.path.exists():
                raise RunDirectoryError(f"{self.path}: it has no config.toml", code="not-a-run-directory")
            return
        if self._run is None:
            self._run = load(self.path)
            needed = [
                key for key in ("method", "source", "metrics_kind", "seed", "data") if key not in self._run.manifest
            ]
            if needed:
                raise RunDirectoryError(f"{self.path}: its manifest has no {needed[0]}", code="not-a-run-directory")
        changed = self._read_events()
        result = _signature(self.path / "result.json")
        if result != self._result:
            self._result, changed = result, True
        state = self._state(result is not None)
        if changed or state != self.state or self._view is None:
            self.state, self.reason = state, ""
            self._view = replace(view_of(self._run, self._digest, self.name), state=state)
            events = _signature(self.path / "events.jsonl")
            self.seconds = max(
                (found[0] / 1e9 for found in (events, result) if found is not None), default=self.seconds
            )
            self.version += 1

    def _read_events(self) -> bool:
        changed = False
        while True:
            found = self._follower.look()
            if found.restart:
                self._digest = RunDigest()
            for event in found.events:
                self._digest.add(event)
            changed = changed or found.restart or bool(found.events)
            if not found.more:
                return changed

    def _state(self, finished: bool) -> str:
        if finished:
            return "finished"
        if self.state in ("running", "stopped") and time.monotonic() - self._looked < OWNER_EVERY:
            return self.state
        self._looked = time.monotonic()
        return "running" if owner(self.path) is not None else "stopped"

    def cannot_be_drawn(self, problem: Exception) -> None:
        """Its files say something that no run of Atoll says."""
        with self.lock:
            self._give_up("damaged", problem)
            self.version += 1

    def _give_up(self, state: str, problem: Exception) -> None:
        if isinstance(problem, AtollError):
            text = str(problem)
        else:
            text = f"its files are not as Atoll writes them ({type(problem).__name__}: {problem})"
        self.state, self.reason = state, " ".join(text.split())[:300].replace(str(self.path), self.name)
        self._run = self._view = None
        self._follower, self._digest = EventFollower(self.path), RunDigest()
        self._refused = self._files()

    def _files(self) -> tuple[object, ...]:
        names = ("config.toml", "manifest.json", "preparation.json", "events.jsonl", "result.json")
        return tuple(_signature(self.path / name) for name in names)


def _signature(path: Path) -> tuple[int, int] | None:
    try:
        about = path.stat()
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size
