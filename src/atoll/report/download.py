"""A bar for downloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TaskID


@contextmanager
def downloading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Gives a function (file, bytes so far, bytes in all or None) that keeps one bar per file."""
    tasks: dict[str, TaskID] = {}
    bars = Progress(console=console)

    def advance(file: str, done: int, total: int | None) -> None:
        if file not in tasks:
            bars.start()  # not before: where nothing is downloaded, nothing is drawn
            tasks[file] = bars.add_task(escape(file), total=total)
        bars.update(tasks[file], completed=done, total=total)

    try:
        yield advance
    finally:
        if tasks:
            bars.stop()
