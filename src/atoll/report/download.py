"""A bar for downloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress


@contextmanager
def downloading(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """Gives a function (file, bytes so far, bytes in all or None) that keeps one bar per file."""
    tasks: dict[str, int] = {}
    with Progress(console=console) as bars:

        def advance(file: str, done: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=done, total=total)  # type: ignore[arg-type]

        yield advance
