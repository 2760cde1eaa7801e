"""How many rows of each class every client holds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atoll.data import Federated
from atoll.data.federated import histogram
from atoll.data.partition import Indices
from atoll.report.figures.canvas import INK, PALETTE, new_figure, plain, save, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 60  # clients: more bars than this cannot be distinguished
BANDS = 400  # rows of a heat map that a screen can show
LEGEND = len(PALETTE)  # classes: more colours cannot be told apart, and a map is drawn
NAMED = 20  # classes that are named below a map


def draw_partition(federated: Federated, path: str | Path, about: str = "") -> Path:
    """The class histogram per client as .png or .svg: stacked bars, or a heat map for many clients or classes. Clients
    that are held out come last."""
    counts = np.concatenate([histogram(federated), histogram(federated, held_out=True)])
    names = [*federated.names, *(f"{name} (held out)" for name in federated.held_out)]
    figure = new_figure(9, 5)
    axes = figure.add_subplot()
    if len(counts) <= MANY and counts.shape[1] <= LEGEND:
        _bars(axes, counts, names, federated.schema.classes)
        tidy(axes)
        axes.grid(axis="x", visible=False)
    else:
        shown = axes.imshow(_bands(counts), aspect="auto", interpolation="nearest", cmap="viridis")
        shown_as = "rows" if len(counts) <= BANDS else "rows (mean of neighbouring clients)"
        figure.colorbar(shown, ax=axes, label=shown_as)
        _label_map(axes, counts, names, federated.schema.classes)
    title = f"{len(counts)} clients, {int(counts.sum()):,} rows, {counts.shape[1]} classes"
    figure.suptitle("\n".join([title, *([plain(about, 110)] if about else [])]), fontsize=11, color=INK)
    return save(figure, Path(path))


def _bars(axes: Axes, counts: Indices, clients: Sequence[str], classes: Sequence[str]) -> None:
    place = np.arange(len(counts))
    below = np.zeros(len(counts), dtype=np.int64)
    for label, name in enumerate(classes):
        axes.bar(place, counts[:, label], bottom=below, width=0.85, color=PALETTE[label], label=plain(name))
        below += counts[:, label]
    axes.set_xticks(place, [plain(name) for name in clients], rotation=90 if len(counts) > 8 else 0, fontsize=8)
    axes.set_ylabel("rows")
    axes.margins(x=0.01)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, title="class", frameon=False)


def _label_map(axes: Axes, counts: Indices, clients: Sequence[str], classes: Sequence[str]) -> None:
    axes.set_xlabel("class")
    axes.set_ylabel("client")
    if len(classes) <= NAMED:
        names: list[Any] = [plain(name, 14) for name in classes]
        angle, side = (45, "right") if len(classes) > 6 else (0, "center")
        axes.set_xticks(np.arange(len(classes)), names, rotation=angle, ha=side)
    bands = min(len(counts), BANDS)
    ticks = np.unique(np.linspace(0, bands - 1, min(bands, 12)).astype(int))
    first = np.arange(bands) * len(counts) // bands
    axes.set_yticks(ticks, [plain(clients[int(first[tick])]) for tick in ticks], fontsize=8)


def _bands(counts: Indices) -> Any:
    """At most `BANDS` rows: neighbouring clients are averaged, so that no client is lost between pixels."""
    if len(counts) <= BANDS:
        return counts
    first = np.arange(BANDS) * len(counts) // BANDS
    sizes = np.diff(np.append(first, len(counts)))
    return np.add.reduceat(counts, first, axis=0) / sizes[:, None]
