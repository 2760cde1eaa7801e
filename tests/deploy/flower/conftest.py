"""What holds for every test of this room: no thread of a grid outlives its test."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def no_grid_is_left() -> Iterator[None]:
    yield
    thread_grid = sys.modules.get("deploy.flower.thread_grid")  # most tests of this room need no Flower
    for grid in list(thread_grid.OPEN) if thread_grid is not None else ():
        grid.close()
