"""A picture of who holds how many rows of which class."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atoll.data import Federated
from atoll.data.federated import histogram
from atoll.data.partition import Indices
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY = 60  # clients: more bars than this cannot be told apart
BANDS = 400  # rows of a heat map that a screen still shows
LEGEND = 20  # classes: more would push the picture off the page


def draw_partition(federated: Federated, path: str | Path) -> Path:
    """Write the class histogram per client to a .png or .svg file: stacked bars, or a heat map for many clients."""
    target = Path(path)
    if target.suffix.lower() not in (".png", ".svg"):
        raise ConfigError(
            f"'{target}': pictures are written as .png or .svg; end the name with one of them",
            code="unknown-figure-format",
        )
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    counts = histogram(federated)
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if len(counts) <= MANY and counts.shape[1] <= LEGEND:
        _bars(axes, counts, federated)
    else:
        shown = axes.imshow(_bands(counts), aspect="auto", interpolation="nearest", cmap="viridis")
        shown_as = "rows" if len(counts) <= BANDS else "rows (mean of neighbouring clients)"
        figure.colorbar(shown, ax=axes, label=shown_as)
        _label_map(axes, counts, federated)
    axes.set_title(f"{len(counts)} clients, {int(counts.sum()):,} rows, {counts.shape[1]} classes")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(target, dpi=120)
    except OSError as error:
        raise ConfigError(
            f"cannot write '{target}' ({error.strerror or error}); name another file", code="cannot-write-file"
        ) from None
    return target


def _bars(axes: Axes, counts: Indices, federated: Federated) -> None:
    from matplotlib import colormaps

    place = np.arange(len(counts))
    colours = colormaps["tab20" if counts.shape[1] > 10 else "tab10"]
    below = np.zeros(len(counts), dtype=np.int64)
    for label, name in enumerate(federated.schema.classes):
        axes.bar(place, counts[:, label], bottom=below, width=0.85, color=colours(label), label=name)
        below += counts[:, label]
    axes.set_xticks(place, federated.names, rotation=90 if len(counts) > 8 else 0, fontsize=8)
    axes.set_ylabel("rows")
    axes.margins(x=0.01)
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, title="class", frameon=False)


def _label_map(axes: Axes, counts: Indices, federated: Federated) -> None:
    axes.set_xlabel("class")
    axes.set_ylabel("client")
    classes = counts.shape[1]
    if classes <= LEGEND:
        names: list[Any] = [name[:14] for name in federated.schema.classes]
        axes.set_xticks(
            np.arange(classes), names, rotation=45 if classes > 6 else 0, ha="right" if classes > 6 else "center"
        )
    bands = min(len(counts), BANDS)
    ticks = np.unique(np.linspace(0, bands - 1, min(bands, 12)).astype(int))
    first = np.arange(bands) * len(counts) // bands
    axes.set_yticks(ticks, [federated.names[int(first[tick])] for tick in ticks], fontsize=8)


def _bands(counts: Indices) -> Any:
    """At most `BANDS` lines: neighbouring clients are averaged, so that nobody's rows vanish between pixels."""
    if len(counts) <= BANDS:
        return counts
    first = np.arange(BANDS) * len(counts) // BANDS
    sizes = np.diff(np.append(first, len(counts)))
    return np.add.reduceat(counts, first, axis=0) / sizes[:, None]
