"""Figures drawn from run directories.

Each figure is a `Figure` object, registered by its name in the group `atoll.figures`. `atoll figures` draws all that
apply to the runs at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from atoll.run.reader import Run

Runs = Mapping[str, Run]  # by the names that they have in legends


@dataclass(frozen=True)
class Figure:
    """A figure, and the runs that it applies to.

    `draw(runs, path, beside)` gets only runs that it applies to, at least `minimum` of them, where to write, and the
    runs that are shown for comparison. It returns the file that it has written.
    """

    name: str
    summary: str
    applies: Callable[[Run], bool]
    draw: Callable[[Runs, Path, Runs], Path]
    minimum: int = 1
