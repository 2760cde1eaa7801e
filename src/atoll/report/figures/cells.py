"""Cells as graphs: inputs, four nodes, their operations, and the output.

Every operation has its own row, and the boxes descend from left to right, so that nothing overlaps for any genotype: a
state's line runs down from its box, a dot marks where an operation reads it, and lines can only cross. A line has the
colour of the state that it carries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.report.figures import Figure, Runs
from atoll.report.figures.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    VERMILLION,
    new_figure,
    plain,
    save,
    short,
)
from atoll.report.figures.titles import entitle
from atoll.report.figures.tracks import architectures
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SNAPSHOTS = ("best", "high")  # picks of snapshots that can hold cells
TITLES = {"normal": "normal cell", "reduce": "reduction cell (operations on an input halve the image)"}
STATES = ("$c_{k-2}$", "$c_{k-1}$", "0", "1", "2", "3")
LINES = (INK, VERMILLION, BLUE, GREEN, PURPLE, ORANGE)  # of the states
FILLS = {"skip": "#f2f2f2", "max": "#f9e3c0", "avg": "#f9e3c0", "sep": "#cfe4f2", "dil": "#cdebe1"}
KEPT = 2  # operations of a node

ACROSS = 3.4  # from a node to the next
INPUT_STEP, FIRST = 1.15, 2.2  # from one input to the other, and where the first operation begins
BOX, TALL = 2.1, 0.64  # of an operation
NODE = 0.3  # radius


def cells_of(run: Run) -> dict[str, dict[str, Any]]:
    """Name -> architecture of every network of cells that a run has; of networks with equal cells, the first."""
    found: dict[str, dict[str, Any]] = {}
    for name, architecture in _networks(run):
        same = any(one["genotype"] == architecture["genotype"] for one in found.values())
        if not same:
            found[name] = architecture
    return found


def draw_cells(networks: Mapping[str, Mapping[str, Any]], path: Path, runs: Runs | None = None) -> Path:
    """The normal and the reduction cell of every network, side by side, one network below the other."""
    figure = new_figure(14, 4.3 * len(networks) + 0.5)
    parts = figure.subfigures(len(networks), 1, squeeze=False)
    for part, (name, architecture) in zip(parts[:, 0], networks.items(), strict=True):
        part.suptitle(_heading(name, architecture), fontsize=10, color=INK)
        for axes, kind in zip(part.subplots(1, 2), TITLES, strict=True):
            _draw_cell(axes, architecture["genotype"][kind])
            axes.set_title(TITLES[kind], fontsize=9, color=INK)
    if runs:
        entitle(figure, "Cells of the networks found", runs)
    return save(figure, path)


def _networks(run: Run) -> list[tuple[str, dict[str, Any]]]:
    if run.finished:
        named = [(candidate["id"], candidate["architecture"]) for candidate in run.result["candidates"]]
    else:
        named = list(architectures(run, SNAPSHOTS).items())
    return [(name, arch) for name, arch in named if arch.get("form") == "genotype"]


def _heading(name: str, architecture: Mapping[str, Any]) -> str:
    from atoll import spaces

    cost = spaces.cost(architecture)
    sizes = f"{architecture['cells']} cells, {architecture['channels']} channels"
    return f"{plain(name)}: {sizes}, {short(cost.params)} weights, {short(cost.macs)} MACs"


def _draw_cell(axes: Axes, pairs: Sequence[Sequence[Any]]) -> None:
    rows = len(pairs)
    places = _places(rows // KEPT)
    right = places[-1][0] + 1.3
    last = {source: row for row, (_, source) in enumerate(_ordered(pairs))}  # the last row that reads a state
    for state, (x, y) in enumerate(places):
        if state in last:
            axes.plot([x, x], [-y, -last[state]], color=LINES[state], linewidth=1.6, zorder=1)
    for row, (word, source) in enumerate(_ordered(pairs)):
        _draw_operation(axes, word, row, places[source][0], LINES[source], places[2 + row // KEPT])
    for state, (x, y) in enumerate(places):
        _draw_state(axes, state, x, -y)
        if state >= KEPT:
            _arrow(axes, (x + NODE, -y), (right - 0.28, -y), FAINT)
    middle, height = (rows - 1) / 2, rows - 0.4
    _box(axes, (right, -middle), (0.56, height), "#d9d9d9")
    axes.text(right, -middle, "$c_k$", ha="center", va="center", fontsize=10, color=INK)
    axes.set(xlim=(-0.7, right + 0.4), ylim=(-rows + 0.3, 1.75))
    axes.set_axis_off()


def _places(nodes: int) -> list[tuple[float, float]]:
    """The position of each state: both inputs above all rows, each node next to its two operations."""
    inputs = [(0.0, -1.1), (INPUT_STEP, -1.1)]
    return inputs + [(FIRST + BOX + 0.75 + ACROSS * node, KEPT * node + 0.5) for node in range(nodes)]


def _ordered(pairs: Sequence[Sequence[Any]]) -> list[tuple[str, int]]:
    """The operations row by row: by node, then by source."""
    rows = []
    for start in range(0, len(pairs), KEPT):
        rows += sorted(((str(word), int(source)) for word, source in pairs[start : start + KEPT]), key=lambda p: p[1])
    return rows


def _draw_operation(axes: Axes, word: str, row: int, source: float, colour: str, node: tuple[float, float]) -> None:
    """From the source's line along the row into the operation, and from there to the node."""
    left = FIRST + ACROSS * (row // KEPT)
    axes.plot([source], [-row], marker="o", markersize=4.5, color=colour, zorder=2)
    _arrow(axes, (source, -row), (left, -row), colour)
    _box(axes, (left + BOX / 2, -row), (BOX, TALL), FILLS[word.partition("_")[0]])
    axes.text(left + BOX / 2, -row, word, ha="center", va="center", fontsize=7.2, color=INK, zorder=4)
    x, y = node
    _arrow(axes, (left + BOX, -row), (x - 0.8 * NODE, -y + 0.6 * NODE * (1 if row < y else -1)), INK)


def _draw_state(axes: Axes, state: int, x: float, y: float) -> None:
    from matplotlib.patches import Circle

    if state < KEPT:
        _box(axes, (x, y), (0.98, 0.64), "#d9d9d9")
    else:
        axes.add_patch(Circle((x, y), NODE, facecolor="white", edgecolor=LINES[state], linewidth=1.6, zorder=3))
    axes.text(x, y, STATES[state], ha="center", va="center", fontsize=9, color=INK, zorder=4)


def _box(axes: Axes, centre: tuple[float, float], size: tuple[float, float], fill: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (centre[0] - size[0] / 2, centre[1] - size[1] / 2)
    style = "round,pad=0,rounding_size=0.1"
    axes.add_patch(
        FancyBboxPatch(corner, *size, boxstyle=style, facecolor=fill, edgecolor=INK, linewidth=0.8, zorder=3)
    )


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.3, "shrinkA": 0, "shrinkB": 0, "mutation_scale": 9}
    axes.annotate("", end, start, arrowprops=style, zorder=2)


def _named(runs: Runs) -> dict[str, dict[str, Any]]:
    """The networks of all runs, named with their run if there are several."""
    return {
        f"{run_name}, {name}" if len(runs) > 1 else name: architecture
        for run_name, run in runs.items()
        for name, architecture in cells_of(run).items()
    }


CELLS = Figure(
    "cells",
    "normal and reduction cell of networks that are built of cells",
    lambda run: bool(cells_of(run)),
    lambda runs, path, _: draw_cells(_named(runs), path, runs),
)
