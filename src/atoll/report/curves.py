"""How a quantity went round by round, of one run or several side by side: a picture, and the numbers as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.report.figures.canvas import whole_rounds
from atoll.run.reader import Run

Curve = dict[int, float]  # round -> value


def curve(run: Run, quantity: str = "test_accuracy") -> Curve:
    """The quantity after each round in which it was measured."""
    measured = {event["round"]: event["metrics"] for event in run.rounds}
    found = {number: float(metrics[quantity]) for number, metrics in measured.items() if quantity in metrics}
    if not found:
        known = {name for metrics in measured.values() for name, value in metrics.items() if _is_number(value)}
        hint = nearest(quantity, known) if measured else "no round is done yet"
        raise RunDirectoryError(
            f"{run.path}: no '{quantity}' in any of its rounds; {hint}", code="quantity-not-recorded"
        )
    return found


def draw_curves(runs: Mapping[str, Run], path: str | Path, quantity: str = "test_accuracy") -> Path:
    """Write a .png or .svg picture with one line per run, named in the legend by its key."""
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(
            f"'{target}': pictures are written as .png or .svg; end the name with one of them",
            code="unknown-picture-format",
        )
    if not runs:
        raise ConfigError("no run to draw a curve of; name at least one", code="no-run-named")
    curves = {name: curve(run, quantity) for name, run in runs.items()}
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for name, points in curves.items():
        # A single point has no line to be seen.
        axes.plot(list(points), list(points.values()), label=name, marker="o" if len(points) == 1 else None)
    axes.set_xlabel("round")
    axes.set_ylabel(quantity.replace("_", " "))
    whole_rounds(axes)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise ConfigError(
            f"cannot write '{target}' ({error.strerror or error}); name another file", code="cannot-write-file"
        ) from None
    return target


def write_curve(run: Run, path: str | Path, quantity: str = "test_accuracy") -> Path:
    """The same numbers as CSV: a line for every round in which the quantity was measured."""
    target = Path(path)
    points = curve(run, quantity)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file, lineterminator="\n")
            rows.writerow(["round", quantity])
            rows.writerows((number, f"{value:.6g}") for number, value in points.items())
    except OSError as error:
        raise ConfigError(
            f"cannot write '{target}' ({error.strerror or error}); name another file", code="cannot-write-file"
        ) from None
    return target


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
