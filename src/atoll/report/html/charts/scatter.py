"""Networks as points: a front of error against cost, with a slider over earlier rounds, and rivals as stars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atoll.report.html.charts.frame import (
    Axis,
    Chart,
    LegendEntry,
    draw,
    lines_layer,
    star,
    stretched,
    x_share,
    y_place,
)
from atoll.report.html.charts.lines import Points
from atoll.report.html.markup import Html, svg, tag
from atoll.report.html.tables import TableColumn

HEIGHT = 320
WIDTHS = (300, 860)  # of the drawing on a phone and on a desk, for which labels are kept apart
LETTER, LINE = 6.8, 15  # pixels of a label
# Offsets of a label from its point, and its side: tried in this order.
PLACES = (
    (10, -8, "start"),
    (10, 16, "start"),
    (-10, -8, "end"),
    (-10, 16, "end"),
    (0, -14, "middle"),
    (0, 24, "middle"),
)


@dataclass(frozen=True)
class Mark:
    """A point: its place, its shape and what is shown when the pointer is on it."""

    x: float
    y: float
    tip: str
    shape: str = "dot"  # dot, ring, star, circle (around another mark), diamond (the same), faint
    look: str = "c0"
    label: str = ""


@dataclass(frozen=True)
class Layer:
    """The marks and lines of one position of the slider."""

    name: str
    marks: Sequence[Mark]
    lines: Sequence[tuple[Points, str]] = ()
    steps: bool = True  # of the lines: a front has corners


@dataclass(frozen=True)
class ScatterChart:
    """What is to be drawn. `layers` are the positions of the slider; the last is shown first."""

    title: str
    x: Axis
    y: Axis
    layers: Sequence[Layer]
    fixed: Sequence[Mark] = ()  # in every position
    about: str = ""
    legend: Sequence[LegendEntry] = ()
    numbers: tuple[Sequence[TableColumn], Sequence[Sequence[str]]] | None = None
    slider: str = ""  # the word of the slider, such as "round"
    spoken: str = ""
    key: str = ""
    height: int = HEIGHT


def scatter_chart(wanted: ScatterChart) -> Html:
    """The chart, with a slider if there is more than one layer."""
    height = wanted.height
    last = len(wanted.layers) - 1
    drawn = [
        svg(
            "g",
            lines_layer(height, [_line(points, look, wanted, layer.steps) for points, look in layer.lines]),
            marks_of([*layer.marks, *wanted.fixed], wanted.x, wanted.y, height),
            class_="layer",
            display=None if number == last else "none",
            data_name=layer.name,
        )
        for number, layer in enumerate(wanted.layers)
    ]
    hover = {"kind": "points", "layers": [_tips([*layer.marks, *wanted.fixed], wanted) for layer in wanted.layers]}
    chart = Chart(
        wanted.title,
        wanted.x,
        wanted.y,
        wanted.about,
        wanted.legend,
        hover,
        wanted.numbers,
        height,
        wanted.spoken,
        _slider(wanted) if last > 0 and wanted.slider else None,
        key=wanted.key,
    )
    return draw(chart, drawn)


def _slider(wanted: ScatterChart) -> Html:
    last = len(wanted.layers) - 1
    return tag(
        "div",
        tag(
            "button", "Play", type="button", class_="play", aria_label=f"Play the {wanted.slider}s one after the other"
        ),
        tag(
            "label",
            tag("span", f"{wanted.slider} "),
            tag("output", wanted.layers[-1].name),
            tag("input", type="range", min=0, max=last, value=last, step=1, class_="slider"),
        ),
        class_="control scripted",
    )


def _line(points: Points, look: str, wanted: ScatterChart, steps: bool) -> Html:
    """There is no network between two of a front: its line has corners, not slopes."""
    parts = []
    for place, (x, y) in enumerate(points):
        across, up = stretched(wanted.x, x), y_place(wanted.y, y, wanted.height)
        parts.append(f"M{across:g} {up:g}" if place == 0 else f"H{across:g}V{up:g}" if steps else f"L{across:g} {up:g}")
    return svg("path", d="".join(parts), class_=f"stroke {look}")


def marks_of(marks: Sequence[Mark], x: Axis, y: Axis, height: int) -> list[Html]:
    """The marks, with labels that keep apart from each other and from other marks."""
    drawn: list[Html] = []
    taken = _Taken(marks, x, y, height)
    for mark in marks:
        across, up = x_share(x, mark.x), y_place(y, mark.y, height)
        drawn.append(_mark(mark.shape, mark.look, across, up))
        if mark.label:
            dx, dy, side = taken.place(mark)
            drawn.append(svg("text", mark.label, x=across, dx=dx, y=up, dy=dy, text_anchor=side, class_="label"))
    return drawn


def _mark(shape: str, look: str, across: str, up: float) -> Html:
    if shape in ("star", "diamond"):
        # A path has no place in shares of the width: it is drawn around the origin of a nested drawing there.
        path = star(0, 0, 9) if shape == "star" else "M0 -8.5L8.5 0L0 8.5L-8.5 0Z"
        word = "star" if shape == "star" else "mark"
        return svg("svg", svg("path", d=path, class_=f"{word} {look}"), x=across, y=up, overflow="visible")
    radius = {"circle": 8.0, "faint": 2.4}.get(shape, 4.2)
    word = {"dot": "fill", "ring": "ring", "circle": "mark", "faint": "fill faint"}[shape]
    return svg("circle", cx=across, cy=up, r=radius, class_=f"{word} {look}")


def _tips(marks: Sequence[Mark], wanted: ScatterChart) -> list[list[object]]:
    return [
        [round(stretched(wanted.x, mark.x)), y_place(wanted.y, mark.y, wanted.height), mark.tip]
        for mark in marks
        if mark.tip
    ]


Box = tuple[float, float, float, float]


class _Taken:
    """The space that marks and labels take, at every width for which labels are kept apart."""

    def __init__(self, marks: Sequence[Mark], x: Axis, y: Axis, height: int) -> None:
        self._x, self._y, self._height = x, y, height
        self._boxes: list[list[Box]] = [[self._around(mark, width) for mark in marks] for width in WIDTHS]

    def place(self, mark: Mark) -> tuple[int, int, str]:
        best, fewest = PLACES[0], 10**9
        for offset in PLACES:
            hits = sum(self._hits(self._label(mark, offset, width), place, width) for place, width in enumerate(WIDTHS))
            if hits < fewest:
                best, fewest = offset, hits
        for place, width in enumerate(WIDTHS):
            self._boxes[place].append(self._label(mark, best, width))
        return best

    def _around(self, mark: Mark, width: float) -> Box:
        across, up = width * self._x.scale.at(mark.x), y_place(self._y, mark.y, self._height)
        return across - 5, up - 5, across + 5, up + 5

    def _label(self, mark: Mark, offset: tuple[int, int, str], width: float) -> Box:
        across, up = width * self._x.scale.at(mark.x) + offset[0], y_place(self._y, mark.y, self._height) + offset[1]
        long = LETTER * len(mark.label)
        left = across - {"start": 0.0, "end": long, "middle": long / 2}[offset[2]]
        return left, up - LINE + 4, left + long, up + 4

    def _hits(self, box: Box, place: int, width: float) -> int:
        left, top, right, bottom = box
        outside = 50 * ((left < -4) + (right > width + 4) + (top < 0) + (bottom > self._height))
        return outside + sum(
            left < other[2] and other[0] < right and top < other[3] and other[1] < bottom
            for other in self._boxes[place]
        )
