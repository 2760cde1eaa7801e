"""TensorBoard: the rounds of a run as event files in its own directory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atoll.run.reader import Run
from atoll.tracking.feed import final_numbers

FOLDER = "tensorboard"  # within the run directory, of which it is no part: it can be deleted


class TensorBoardTracker:
    """Writes RUN/tensorboard. A resumed run writes all of its rounds again, so that none is there twice."""

    def __init__(self) -> None:
        self._writer: Any = None
        self._folder = Path(FOLDER)

    @property
    def place(self) -> str:
        return f"tensorboard --logdir {self._folder.parent}"

    def begin(self, run: Run) -> int:
        from torch.utils.tensorboard import SummaryWriter

        self._folder = run.path / FOLDER
        for old in self._folder.glob("events.out.tfevents.*"):
            old.unlink()
        self._writer = SummaryWriter(str(self._folder), flush_secs=5)
        config = (run.path / "config.toml").read_text(encoding="utf-8")
        self._writer.add_text("config.toml", "\n".join(f"    {line}" for line in config.splitlines()))
        return 0

    def log(self, number: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def end(self, run: Run) -> None:
        if run.finished:
            last = int(run.result["rounds"])
            for name, value in final_numbers(run).items():
                self._writer.add_scalar(name, value, last)
        self._writer.close()
