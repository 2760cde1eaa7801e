"""What all figures share: size, colours, labels, files. matplotlib is imported only when a figure is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FORMATS = ("png", "svg")
# Okabe and Ito's palette, which can be distinguished with any kind of colour vision.
BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"
INK, FAINT = "#3b3b3b", "#9a9a9a"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, "#7a6a00", "#7f7f7f")
SCALES = ((1e9, "billions", "G"), (1e6, "millions", "M"), (1e3, "thousands", "k"))


def new_figure(width: float, height: float) -> Figure:
    """A figure without pyplot, whose global state would keep every figure in memory."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes) -> None:
    """The common style: no frame, a faint grid behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)


def whole_rounds(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))  # else a single round gets fractions


def logarithmic(axis: Axis, low: float, high: float) -> None:
    """Marks of a logarithmic axis at few, round numbers, written out: labels between decades would overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    steps = (1.0, 2.0, 5.0) if high / low < 50 else (1.0, 3.0) if high / low < 500 else (1.0,)
    axis.set_major_locator(LogLocator(subs=steps))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}" if value < 10_000 else short(value)))


def save(figure: Figure, path: Path) -> Path:
    """Write the figure in the format of its suffix; the folder is made if necessary."""
    if path.suffix.lower().lstrip(".") not in FORMATS:
        raise ConfigError(
            f"'{path}': figures are written as .png or .svg; end the name with one of them",
            code="unknown-figure-format",
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
    except OSError as error:
        raise ConfigError(
            f"cannot write '{path}' ({error.strerror or error}); name another folder", code="cannot-write-file"
        ) from None
    return path


def scale(largest: float) -> tuple[float, str]:
    """The divisor that makes amounts up to `largest` short numbers, and its word."""
    return next(((factor, word) for factor, word, _ in SCALES if largest >= factor), (1.0, ""))


def short(amount: float) -> str:
    """934,080 is 934 k."""
    factor, letter = next(((factor, f" {letter}") for factor, _, letter in SCALES if amount >= factor), (1.0, ""))
    return f"{amount / factor:.3g}{letter}"


def plain(text: str, longest: int = 40) -> str:
    """A name as a label: dollar signs are escaped, which matplotlib reads as mathematics, and long names are cut.

    They are cut in the middle, because names differ at the beginning and paths at the end.
    """
    half = longest // 2
    short_text = text if len(text) <= longest else f"{text[: half - 1]}…{text[-half:]}"
    return short_text.replace("$", r"\$")
