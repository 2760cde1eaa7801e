"""The front: error against cost of the non-dominated networks (real-time paper, Fig. 8 and 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import ConfigError
from atoll.report.figures import Figure
from atoll.report.figures.canvas import INK, PALETTE, logarithmic, new_figure, plain, save, scale, tidy
from atoll.report.figures.titles import about, apart, data_of, entitle
from atoll.report.figures.tracks import FrontPoint, fixed_macs, front, tracks
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE = 30  # a front whose costs differ by more than this factor is drawn on a logarithmic axis
COSTS = {
    "macs": "multiply-accumulates of one forward pass",
    "params": "parameters",
    "upload_bytes": "bytes of one upload",
    "latency": "seconds of one round on a client",
    "connections": "weights of one upload, mean of the clients",
}
# Shape, size, and offset of the label: High is the lowest point of its front, so there is space below it.
MARKS = {
    "high": ("o", 130, (9, -14)),
    "knee": ("D", 100, (9, 8)),
    "high2": ("o", 80, (-14, 12)),
    "knee2": ("D", 60, (9, 8)),
}


def draw_front(runs: Mapping[str, Run], path: Path, beside: Mapping[str, Run] | None = None) -> Path:
    """All points of each run's front, with its picks marked; fixed networks of `beside` for comparison.

    Filled points are validation errors, which the search minimised; rings are the same networks on test data.
    """
    fronts = {name: points for name, run in runs.items() if (points := front(run))}
    if not fronts:
        raise ConfigError("none of these runs has a front to draw; runs of a search have one", code="nothing-to-draw")
    # Fronts with other costs, or on other data, have no common axis: each kind has a panel of its own.
    panels = [
        (own, cost)
        for own in apart({name: runs[name] for name in fronts}, data_of).values()
        for cost in dict.fromkeys(cost for name in own for cost in fronts[name][0].costs)
    ]
    figure = new_figure(7.2 * len(panels), 5.0)
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(fronts)}
    for position, (own, cost) in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), position)
        shown = {name: fronts[name] for name in own if cost in fronts[name][0].costs}
        _panel(axes, shown, colours, cost, (beside or {}) if cost == "macs" else {})
        if len(panels) > 1:
            axes.set_title(about(own[name] for name in shown), fontsize=10, color=INK)
    entitle(figure, "Networks that no other one beats in both error and cost", runs)
    return save(figure, path)


def _panel(
    axes: Axes,
    fronts: Mapping[str, Sequence[FrontPoint]],
    colours: Mapping[str, str],
    cost: str,
    beside: Mapping[str, Run],
) -> None:
    values = [point.costs[cost] for points in fronts.values() for point in points if cost in point.costs]
    fixed = {name: macs for name, run in beside.items() if tracks(run) and (macs := fixed_macs(run)) is not None}
    factor, word = scale(max([*values, *fixed.values()], default=1.0))
    for name, points in fronts.items():
        shown = [point for point in points if cost in point.costs]
        _draw_points(axes, shown, [point.costs[cost] / factor for point in shown], colours[name])
    for name, macs in fixed.items():
        _draw_fixed(axes, name, beside[name], macs / factor)
    _draw_legend(axes, fronts, colours, fixed)
    if min(values) > 0 and max(values) > WIDE * min(values):
        axes.set_xscale("log")
        logarithmic(axes.xaxis, min(values) / factor, max(values) / factor)
    axes.set_xlabel(COSTS.get(cost, cost.replace("_", " ")) + (f" ({word})" if word else ""))
    axes.set_ylabel("error (%)" if _tested(fronts) else "error on validation data (%)")
    axes.margins(x=0.06, y=0.1)
    tidy(axes)


def _draw_points(axes: Axes, points: Sequence[FrontPoint], costs: Sequence[float], colour: str) -> None:
    errors = [100 * point.error for point in points]
    # There is no network between two points: the dominated region has a corner there, not a slope.
    axes.step(costs, errors, where="pre", color=colour, alpha=0.45, linewidth=1.2, zorder=2)
    for point, x, y in zip(points, costs, errors, strict=True):
        if point.test_error is not None:
            axes.plot([x, x], [y, 100 * point.test_error], color=colour, alpha=0.35, linewidth=1, zorder=1)
            axes.scatter([x], [100 * point.test_error], s=26, facecolors="white", edgecolors=colour, zorder=3)
        axes.scatter([x], [y], s=26, color=colour, zorder=4)
        for pick in point.picks:
            shape, size, offset = MARKS[pick]
            axes.scatter([x], [y], s=size, marker=shape, facecolors="none", edgecolors=INK, linewidths=1.5, zorder=5)
            axes.annotate(pick.title(), (x, y), offset, textcoords="offset points", fontsize=9, color=colour, zorder=6)


def _draw_fixed(axes: Axes, name: str, run: Run, macs: float) -> None:
    """A network that is not the result of a search: a star at its last error."""
    track = tracks(run)[0]
    for errors, face in ((track.test, "white"), (track.validation, INK)):
        if errors:
            y = 100 * errors[max(errors)]
            axes.scatter([macs], [y], s=120, marker="*", facecolors=face, edgecolors=INK, linewidths=1, zorder=4)
            last = y
    axes.annotate(plain(name), (macs, last), (-10, 8), textcoords="offset points", ha="right", fontsize=9, color=INK)


def _tested(fronts: Mapping[str, Sequence[FrontPoint]]) -> bool:
    return any(point.test_error is not None for points in fronts.values() for point in points)


def _draw_legend(
    axes: Axes,
    fronts: Mapping[str, Sequence[FrontPoint]],
    colours: Mapping[str, str],
    fixed: Mapping[str, float],
) -> None:
    from matplotlib.lines import Line2D

    entries = [Line2D([], [], color=colours[name], marker="o", markersize=5, label=plain(name)) for name in fronts]
    if _tested(fronts):
        for face, label in (
            (INK, "on validation data (used by the search)"),
            ("white", "the same network on test data"),
        ):
            entries.append(Line2D([], [], color=INK, linestyle="none", marker="o", markersize=5, label=label))
            entries[-1].set_markerfacecolor(face)
    if fixed:
        entries.append(Line2D([], [], color=INK, linestyle="none", marker="*", markersize=10, label="fixed network"))
    axes.legend(handles=entries, frameon=False, fontsize=9, labelcolor=INK)


FRONT = Figure("front", "error against cost of the networks of a front", lambda run: bool(front(run)), draw_front)
