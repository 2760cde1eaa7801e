"""Networks of the choice space as rows of blocks: the branch of each block, its channels and its MACs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.report.figures import Figure, Runs
from atoll.report.figures.canvas import BLUE, FAINT, GREEN, INK, ORANGE, SKY, new_figure, plain, save, short
from atoll.report.figures.titles import entitle
from atoll.report.figures.tracks import PICKS, architectures, rounds_of
from atoll.run.reader import Run

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
LIGHT = {"identity", "inverted", "bottleneck", "dense", "end"}  # these have dark text


@dataclass(frozen=True)
class BlockBox:
    """One part of a network in the figure."""

    kind: str
    word: str
    width: str  # channels, or the width of a table's layer
    size: str  # pixels, "" for tables
    macs: int


def boxes(architecture: Mapping[str, Any]) -> list[BlockBox]:
    """The parts that a sub-model of the choice space executes, from stem to head."""
    from atoll.spaces.choice.plan import key_of, plan

    whole, key = plan(architecture), key_of(architecture)
    if key is None:
        raise ConfigError("a master has no single row of blocks to draw; give a key", code="key-not-given")
    image = len(architecture["input"]) == 3
    lists = architecture["channels"] if image else architecture["widths"]
    height, width = architecture["input"][1:] if image else (0, 0)
    stem = whole.stem.layers[0].outputs
    found = [BlockBox("end", "stem", _channels(stem, image), _pixels(height, width), whole.stem.macs)]
    before = stem
    for block, branch, after in zip(whole.blocks, key, lists, strict=True):
        if after != before:
            height, width = (height + 1) // 2, (width + 1) // 2
        word = whole.branch_names[branch]
        found.append(BlockBox(word, word, _channels(after, image), _pixels(height, width), block[branch].macs))
        before = after
    return [*found, BlockBox("end", "head", f"{architecture['classes']} classes", "", whole.head.macs)]


def draw_networks(networks: Mapping[str, Mapping[str, Any]], path: Path, runs: Runs | None = None) -> Path:
    """One row of blocks per architecture, under its heading; below every block its MACs, on one common scale."""
    if not networks:
        raise ConfigError("no network to draw yet", code="nothing-to-draw")
    rows = {heading: boxes(architecture) for heading, architecture in networks.items()}
    longest = max(len(row) for row in rows.values())
    largest = max(1, *(box.macs for row in rows.values() for box in row))
    figure = new_figure(max(6.0, 1.12 * longest), 2.3 * len(rows) + 0.5)
    panels = figure.subplots(len(rows), 1, squeeze=False)
    for axes, (heading, row) in zip(panels[:, 0], rows.items(), strict=True):
        _draw_row(axes, row, largest)
        axes.set_xlim(-0.75, longest)
        axes.set_ylim(-0.95, 1.12)
        axes.axis("off")
        axes.set_title(plain(heading, 120), loc="left", fontsize=10, color=INK)
    if runs:
        entitle(figure, "Networks of choice blocks", runs)
    return save(figure, path)


def _draw_row(axes: Axes, row: Sequence[BlockBox], largest: int) -> None:
    for place, box in enumerate(row):
        if place:
            axes.annotate("", (place + 0.08, 0.5), (place - 0.08, 0.5), arrowprops={"arrowstyle": "->", "color": FAINT})
        _draw_box(axes, place, box)
        depth = 0.6 * box.macs / largest
        axes.bar(place + 0.5, -depth, width=0.5, bottom=-0.1, color=INK, alpha=0.55)
        axes.text(place + 0.5, -0.15 - depth, short(box.macs), ha="center", va="top", fontsize=8, color=INK)
    axes.text(-0.05, -0.12, "MACs", ha="right", va="top", fontsize=8, color=INK)


def _draw_box(axes: Axes, place: int, box: BlockBox) -> None:
    from matplotlib.patches import FancyBboxPatch

    skipped = box.kind == "identity" and box.macs == 0  # the block passes its input on
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


def _found(run: Run) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """Key -> picks and architecture, for High and Knee of a search over choice blocks."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for pick, architecture in architectures(run, PICKS).items():
        if architecture.get("space") == "choice":
            key = "".join(str(branch) for branch in architecture["key"])
            found.setdefault(key, ([], architecture))[0].append(pick)
    return found


def _headed(runs: Runs) -> dict[str, dict[str, Any]]:
    """Heading -> architecture, for the networks of all runs."""
    return {
        (f"{name}, " if len(runs) > 1 else "") + _heading(picks, key, run): architecture
        for name, run in runs.items()
        for key, (picks, architecture) in _found(run).items()
    }


def _heading(picks: Sequence[str], key: str, run: Run) -> str:
    text = f"{' and '.join(pick.title() for pick in picks)}: {key}"
    rounds = [event.get(picks[0], {}) for event in reversed(rounds_of(run))]
    metrics: dict[str, Any] = next(
        (row for row in rounds if row.get("key") == key), {}
    )  # a snapshot may be of an earlier round
    if "macs" in metrics:
        text += f", {short(metrics['macs'])} MACs"
    if "error" in metrics:
        text += f", validation error {100 * metrics['error']:.1f} %"
    tested = [row["test_error"] for row in rounds if "test_error" in row and row.get("published", row["key"]) == key]
    if tested:
        text += f", test error {100 * tested[0]:.1f} %"
    return text


NETWORKS = Figure(
    "networks",
    "High and Knee of a search over choice blocks, as rows of blocks",
    lambda run: bool(_found(run)),
    lambda runs, path, _: draw_networks(_headed(runs), path, runs),
)
