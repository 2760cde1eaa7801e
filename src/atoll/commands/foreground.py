"""A command that runs until it is told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def foreground() -> Iterator[Callable[[], bool]]:
    """Ctrl-C, SIGTERM and a closed terminal set a flag, which the function given tells; what runs can end in order."""
    told: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.signal(number, lambda number, _frame: told.append(number)) for number in numbers}
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
