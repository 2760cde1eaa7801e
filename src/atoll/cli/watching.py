"""Watching runs: progress in the terminal, Ctrl-C, and trackers."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.console import complain, out_console, tell
from atoll.errors import Paused

if TYPE_CHECKING:
    from atoll.report.terminal import LiveProgress, PlainProgress
    from atoll.tracking import TrackedWatcher

INTERRUPTED = 130  # exit code: stopped by Ctrl-C after a checkpoint

Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")]
Track = Annotated[
    str | None, typer.Option(help="Also send every round to: tensorboard, mlflow (or both, with a comma).")
]


class Watching:
    """What looks at one run after the other: the progress display, and trackers if they are wanted."""

    def __init__(self, progress: LiveProgress | PlainProgress, track: str | None) -> None:
        self.progress = progress
        self.signals: list[int] = []
        self._track = [name.strip() for name in track.split(",")] if track is not None else []
        self._tracked: TrackedWatcher | None = None

    def options(self, folder: Path) -> dict[str, Any]:
        """The watcher and the stop function of the run in this folder."""
        self.finish()
        watcher: Any = self.progress
        if self._track:
            from atoll.tracking import TrackedWatcher, open_trackers

            watcher = self._tracked = TrackedWatcher(self.progress, folder, open_trackers(self._track), complain)
        return {"watcher": watcher, "stop": lambda: bool(self.signals)}

    def finish(self) -> None:
        """The trackers of the last run have got everything."""
        if self._tracked is not None:
            self._tracked.finish()
            for place in self._tracked.places():
                tell(f"tracked: {place}")
            self._tracked = None


@contextmanager
def watched(quiet: bool, folder: Path, again: str | None = None, track: str | None = None) -> Iterator[Watching]:
    """Progress and signals: the first Ctrl-C stops after the round and a checkpoint, the second immediately."""
    from atoll.report.terminal import progress

    watching = Watching(progress(out_console, quiet), track)

    def on_signal(number: int, _frame: object) -> None:
        if watching.signals:
            raise KeyboardInterrupt
        watching.signals.append(number)
        # Directly to the error stream: the signal may arrive while rich is printing or being imported.
        start = b"\n" if os.isatty(2) else b""  # below the progress bar
        os.write(2, start + b"stopping after this round (once more: at once)\n")

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield watching
    except Paused as pause:
        watching.progress.close()
        hint = f"; continue with: {again or f'atoll resume {shlex.quote(str(folder))}'}" if pause.resumable else ""
        complain(f"{pause}{hint} [{pause.code}]")
        raise typer.Exit(INTERRUPTED if watching.signals else pause.exit_code) from None
    finally:
        watching.progress.close()
        watching.finish()
        for number, handler in before.items():
            signal.signal(number, handler)
