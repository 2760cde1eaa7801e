"""Found networks as rows of blocks: which branch each choice block takes, its channels, and where the MACs go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.report.figures.canvas import BLUE, FAINT, GREEN, INK, ORANGE, SKY, new_figure, plain, save, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {
    "identity": "#f2f2f2",
    "residual": BLUE,
    "inverted": ORANGE,
    "separable": GREEN,
    "dense": SKY,
    "bottleneck": ORANGE,
    "end": "#d9d9d9",  # input, stem and head, which every network has
}
LIGHT = {"identity", "inverted", "bottleneck", "dense", "end"}  # dark writing stands out on these


@dataclass(frozen=True)
class Box:
    """One part of a network in the picture."""

    kind: str
    word: str
    width: str  # channels, or the width of a table's layer
    size: str  # pixels, "" for tables
    macs: int


def boxes(architecture: Mapping[str, Any]) -> list[Box]:
    """The parts that a sub-model of the choice space executes, from stem to head."""
    from atoll.spaces.choice.plan import key_of, plan

    whole, key = plan(architecture), key_of(architecture)
    if key is None:
        raise ConfigError("a master has no single row of blocks to draw; give it a key", code="key-not-given")
    image = len(architecture["input"]) == 3
    lists = architecture["channels"] if image else architecture["widths"]
    height, width = architecture["input"][1:] if image else (0, 0)
    stem = whole.stem.layers[0].outputs
    found = [Box("end", "stem", _channels(stem, image), _pixels(height, width), whole.stem.macs)]
    before = stem
    for block, branch, after in zip(whole.blocks, key, lists, strict=True):
        if after != before:
            height, width = (height + 1) // 2, (width + 1) // 2
        word = whole.branch_names[branch]
        found.append(Box(word, word, _channels(after, image), _pixels(height, width), block[branch].macs))
        before = after
    return [*found, Box("end", "head", f"{architecture['classes']} classes", "", whole.head.macs)]


def draw_networks(networks: Mapping[str, Mapping[str, Any]], path: Path) -> Path:
    """One row of blocks for each architecture, with its heading; below every block its MACs, to one scale for all."""
    if not networks:
        raise ConfigError("no network to draw yet", code="nothing-to-draw")
    rows = {heading: boxes(architecture) for heading, architecture in networks.items()}
    longest = max(len(row) for row in rows.values())
    dearest = max(1, *(box.macs for row in rows.values() for box in row))
    figure = new_figure(max(6.0, 1.12 * longest), 2.3 * len(rows))
    panels = figure.subplots(len(rows), 1, squeeze=False)
    for axes, (heading, row) in zip(panels[:, 0], rows.items(), strict=True):
        _draw_row(axes, row, dearest)
        axes.set_xlim(-0.75, longest)
        axes.set_ylim(-0.95, 1.12)
        axes.axis("off")
        axes.set_title(plain(heading, 120), loc="left", fontsize=11, color=INK)
    return save(figure, path)


def _draw_row(axes: Axes, row: Sequence[Box], dearest: int) -> None:
    for place, box in enumerate(row):
        if place:
            axes.annotate("", (place + 0.08, 0.5), (place - 0.08, 0.5), arrowprops={"arrowstyle": "->", "color": FAINT})
        _draw_box(axes, place, box)
        depth = 0.6 * box.macs / dearest
        axes.bar(place + 0.5, -depth, width=0.5, bottom=-0.1, color=INK, alpha=0.55)
        axes.text(place + 0.5, -0.15 - depth, short(box.macs), ha="center", va="top", fontsize=8, color=INK)
    axes.text(-0.05, -0.12, "MACs", ha="right", va="top", fontsize=8, color=INK)


def _draw_box(axes: Axes, place: int, box: Box) -> None:
    from matplotlib.patches import FancyBboxPatch

    skipped = box.kind == "identity" and box.macs == 0  # nothing at all happens here
    shape = FancyBboxPatch(
        (place + 0.13, 0.05),
        0.74,
        0.9,
        boxstyle="round,pad=0,rounding_size=0.08",
        facecolor="white" if skipped else COLOURS.get(box.kind, FAINT),
        edgecolor=FAINT if skipped else INK,
        linestyle="--" if skipped else "-",
        linewidth=1,
    )
    axes.add_patch(shape)
    colour = FAINT if skipped else INK if box.kind in LIGHT else "white"
    words = [box.word, box.width, box.size]
    for line, text in zip((0.74, 0.48, 0.26), words, strict=True):
        weight = "bold" if text is box.word else "normal"
        axes.text(place + 0.5, line, text, ha="center", va="center", fontsize=8, color=colour, weight=weight)


def _channels(number: int, image: bool) -> str:
    return f"{number} channels" if image else f"{number} wide"


def _pixels(height: int, width: int) -> str:
    return f"{height} x {width}" if height else ""
