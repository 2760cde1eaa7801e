"""A metric over the rounds of one or several runs: as a figure and as CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.report.figures.canvas import PALETTE, new_figure, plain, save, tidy, whole_rounds
from atoll.run.reader import Run


def curve(run: Run, metric: str = "test_accuracy") -> dict[int, float]:
    """Round -> the metric, for the rounds in which it was measured."""
    measured = {event["round"]: event["metrics"] for event in run.rounds}
    found = {number: float(metrics[metric]) for number, metrics in measured.items() if metric in metrics}
    if not found:
        known = {name for metrics in measured.values() for name, value in metrics.items() if _is_number(value)}
        hint = nearest(metric, known) if measured else "no round is done yet"
        raise RunDirectoryError(f"{run.path}: no round has the metric '{metric}'; {hint}", code="metric-not-recorded")
    return found


def draw_curves(runs: Mapping[str, Run], path: Path, metric: str = "test_accuracy") -> Path:
    """One line per run, named in the legend by its key."""
    if not runs:
        raise ConfigError("no run to draw a curve of; name at least one", code="no-run-named")
    figure = new_figure(8, 4.5)
    axes = figure.add_subplot()
    for number, (name, run) in enumerate(runs.items()):
        points = curve(run, metric)
        marker = "o" if len(points) == 1 else None  # a single point has no visible line
        colour = PALETTE[number % len(PALETTE)]
        axes.plot(list(points), list(points.values()), color=colour, label=plain(name), marker=marker)
    axes.set_xlabel("round")
    axes.set_ylabel(metric.replace("_", " "))
    axes.legend(frameon=False)
    whole_rounds(axes)
    tidy(axes)
    return save(figure, path)


def write_curve(run: Run, path: Path, metric: str = "test_accuracy") -> Path:
    """The same numbers as CSV, one line per round in which the metric was measured."""
    points = curve(run, metric)
    with open(path, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["round", metric])
        rows.writerows((number, f"{value:.6g}") for number, value in points.items())
    return path


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
