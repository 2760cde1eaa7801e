"""Work that may take so long and no longer: a site that waits for a hung task would be lost to the federation."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


class TookTooLong(Exception):
    """The work had not ended when its time was over."""


def within(seconds: float, work: Callable[[], Result]) -> Result:
    """What `work` returns or raises. When time is over it is left to itself, for a thread cannot be stopped: the
    process should end soon, as a node's does after each task."""
    results: list[Result] = []
    problems: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as problem:  # raised again below, where somebody can hear it
            problems.append(problem)

    worker = threading.Thread(target=run, name="task", daemon=True)  # a daemon: no process waits for it at its end
    worker.start()
    worker.join(seconds)
    if problems:
        raise problems[0]
    if not results:
        raise TookTooLong
    return results[0]
