"""From the event log to trackers, while a run goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from atoll.core.ledger import Account, account_from_plain
from atoll.errors import ConfigError, RunDamaged, nearest
from atoll.extras import require
from atoll.run.digest import scalars
from atoll.run.following import EventFollower
from atoll.run.loop import Watcher, report_notes, report_set_aside
from atoll.run.reader import Run, load

KNOWN = ("tensorboard", "mlflow")


class Tracker(Protocol):
    """Where the rounds of one run go. An exception that it raises ends the tracking, not the run."""

    def begin(self, run: Run) -> int:
        """The run's directory exists. Returns the last round that this tracker has already, 0 if none."""

    def log(self, number: int, values: Mapping[str, float]) -> None:
        """The numbers of a round."""

    def end(self, run: Run) -> None:
        """The run has a result, or was paused."""

    @property
    def place(self) -> str:
        """How the user finds it, in a sentence."""


def open_trackers(names: Sequence[str]) -> list[Tracker]:
    """The trackers of these names. `ConfigError` if one is unknown, not installed or cannot be reached."""
    for name in names:
        if name not in KNOWN:
            raise ConfigError(f"--track {name}: unknown; {nearest(name, KNOWN)}", code="unknown-tracker")
        require(name)
    classes = {"tensorboard": "TensorBoardTracker", "mlflow": "MlflowTracker"}
    # Their libraries take seconds to import.
    return [getattr(import_module(f"atoll.tracking.{name}_tracker"), classes[name])() for name in dict.fromkeys(names)]


class TrackedWatcher:
    """A watcher that also feeds trackers. `warn` is called once for each that fails."""

    def __init__(
        self, inner: Watcher | None, folder: Path, trackers: Sequence[Tracker], warn: Callable[[str], None]
    ) -> None:
        self._inner, self._folder, self._warn = inner, folder, warn
        self._trackers: dict[Tracker, int] = dict.fromkeys(trackers, 0)  # and the last round that it has
        self._follower = EventFollower(folder)
        self._total = Account()
        self._begun = False

    def round_done(self, number: int, rounds: int, metrics: Any, total: Account, seconds: float) -> None:
        self._feed()
        if self._inner is not None:
            self._inner.round_done(number, rounds, metrics, total, seconds)

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
        self._feed()
        if self._inner is not None:
            self._inner.round_failed(number, reason, attempt, patience)

    def client_set_aside(self, number: int, client: str, reason: str) -> None:
        report_set_aside(self._inner, number, {client: reason})

    def noted(self, lines: Sequence[str]) -> None:
        report_notes(self._inner, lines)

    def places(self) -> list[str]:
        """Where the trackers that have not failed can be seen."""
        return [tracker.place for tracker in self._trackers]

    def finish(self) -> None:
        """The run has ended, or is paused."""
        if not (self._folder / "config.toml").exists():
            return
        self._feed()
        for tracker in list(self._trackers):
            self._attempt(tracker, lambda one: one.end(load(self._folder)))

    def _feed(self) -> None:
        """Give the trackers what was appended to the event log. A resumed run begins with all of its rounds."""
        if not self._begun:
            self._begun = True
            for tracker in list(self._trackers):
                self._attempt(tracker, self._begin)
        while True:
            try:
                found = self._follower.look()
            except RunDamaged as problem:  # the run itself reports it when it is resumed
                self._warn(f"tracking stops: {problem}")
                self._trackers.clear()
                return
            if found.restart:
                self._total = Account()
            for event in found.events:
                self._give(event)
            if not found.more:
                return

    def _begin(self, tracker: Tracker) -> None:
        self._trackers[tracker] = tracker.begin(load(self._folder))

    def _give(self, event: Mapping[str, Any]) -> None:
        if "metrics" not in event:
            return
        if "ledger" in event:
            self._total.add(account_from_plain(event["ledger"]))
        number, values = int(event["round"]), numbers(event, self._total)
        for tracker, last in list(self._trackers.items()):
            if number > last:
                self._attempt(tracker, lambda one: one.log(number, values))

    def _attempt(self, tracker: Tracker, what: Callable[[Tracker], None]) -> None:
        try:
            what(tracker)
        except Exception as problem:  # foreign code and foreign servers: a search must not end because of them
            reason = " ".join(f"{type(problem).__name__}: {problem}".split())[:200]
            self._warn(f"{type(tracker).__name__} failed, the run goes on without it ({reason})")
            self._trackers.pop(tracker, None)


def numbers(event: Mapping[str, Any], total: Account) -> dict[str, float]:
    """The metrics of a round, and what the run has cost so far. Names have a group before a slash."""
    found = {
        name.replace(".", "/") if "." in name else f"metrics/{name}": value for name, value in scalars(event["metrics"])
    }
    found |= {
        "cost/bytes_up": float(total.bytes_up),
        "cost/bytes_down": float(total.bytes_down),
        "cost/client_macs": float(total.client_macs),
    }
    if total.simulated_seconds:
        found["cost/simulated_seconds"] = total.simulated_seconds
    if "wall_seconds" in event:
        found["cost/wall_seconds"] = float(event["wall_seconds"])
    return found | {f"replies/{fate}": float(number) for fate, number in total.replies.items() if number}


def final_numbers(run: Run) -> dict[str, float]:
    """The recommended network as it is handed over."""
    entry: Mapping[str, Any] = {}
    for candidate in run.result["candidates"]:
        if run.recommended in (candidate["id"], *candidate["picks"]):
            entry = candidate
    measured = entry.get("test", {})
    found = {
        f"result/{name}": float(measured[name])
        for name in ("test_error", "test_f1", "baseline_error")
        if name in measured
    }
    objectives = entry.get("objectives", {})
    return found | {
        f"result/{name}": float(objectives[name]) for name in ("macs", "params", "upload_bytes") if name in objectives
    }
