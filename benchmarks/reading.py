"""Reading a CSV file of own data, whole columns at once, beside the same rules cell by cell and beside pyarrow.

    python benchmarks/reading.py

A file of 100,000 rows and 20 columns of numbers. Takes ten seconds. Prints CPU seconds and ratios measured in this run.
"""

from __future__ import annotations

import csv
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow.csv

from atoll.data.files.folder import judge, open_folder
from atoll.data.settings import DataSettings
from atoll.preparation.cells import is_missing, to_number
from atoll.rng import stream

ROWS, COLUMNS, REPEATS = 100_000, 20, 3


def write(path: Path) -> None:
    rng = stream(0)
    values, labels = rng.normal(size=(ROWS, COLUMNS)).round(4), rng.integers(0, 2, ROWS)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{number}" for number in range(COLUMNS)), "label"])
        writer.writerows([*row, label] for row, label in zip(values.tolist(), labels.tolist(), strict=True))


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds, the least of a few."""
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def cell_by_cell(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        _, *rows = csv.reader(file)
    for column in zip(*rows, strict=True):
        np.array([np.nan if is_missing(cell) else to_number(cell) for cell in column], float)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        write(path)
        settings = DataSettings.model_validate({"folder": str(path)})
        ours = seconds(lambda: judge(open_folder(settings), settings))
        cells = seconds(lambda: cell_by_cell(path))
        arrow = seconds(lambda: pyarrow.csv.read_csv(path))
    print(f"{ROWS:,} x {COLUMNS}: opened and judged {ours:.2f} CPU-s, cell by cell {cells:.2f}, pyarrow {arrow:.2f}")
    print(f"cell by cell takes {cells / ours:.1f} times as long; pyarrow, without rules and lines, {arrow / ours:.1f}")


if __name__ == "__main__":
    main()
