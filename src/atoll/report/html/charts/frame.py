"""The frame that all charts share: title, legend, axes with labels, and the numbers as a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from atoll.report.html.charts.scales import Form, Scale, plain
from atoll.report.html.markup import Html, join, svg, tag
from atoll.report.html.tables import TableColumn, table

HEIGHT = 250
STRETCH = 1000  # the width of the coordinates in which lines are drawn
NARROW, LETTER = 250, 6.8  # pixels of the narrowest drawing, and of a letter
COLOURS = 8  # classes c0 to c7 of the style sheet; the same order everywhere


@dataclass(frozen=True)
class Axis:
    """One axis: what it shows, its scale, and how its numbers are written."""

    label: str
    scale: Scale
    form: Form = plain
    ticks: Sequence[float] | None = None
    most: int = 6

    def marks(self) -> list[float]:
        """The marked values; with fewer digits than would distinguish them, a number is written once."""
        found = list(self.ticks) if self.ticks is not None else self.scale.ticks(self.most)
        return list({self.form(value): value for value in reversed(found)}.values())[::-1]


@dataclass(frozen=True)
class LegendEntry:
    """A mark and its word. `look` is a class of the style sheet: c0, c1, ...; `mark` its shape."""

    word: str
    look: str
    mark: str = "line"  # line, dashes, dot, ring, star, diamond, square


@dataclass(frozen=True)
class Chart:
    """Everything of a chart but its drawing."""

    title: str
    x: Axis
    y: Axis
    about: str = ""  # one sentence below the title
    legend: Sequence[LegendEntry] = ()
    hover: dict[str, Any] | None = None  # what the script shows under the pointer
    numbers: tuple[Sequence[TableColumn], Sequence[Sequence[str]]] | None = None
    height: int = HEIGHT
    spoken: str = ""  # the drawing in words, for screen readers
    control: Html | None = None  # a slider, say, below the drawing
    classes: str = ""
    key: str = ""  # names the chart in a page that is updated
    names: Sequence[tuple[float, str]] = ()  # instead of numbers beside the y axis: places from the top, and names


def x_share(axis: Axis, value: float) -> str:
    """A position across the drawing, for the attributes of marks and text."""
    return f"{100 * axis.scale.at(value):.2f}%"


def y_place(axis: Axis, value: float, height: int) -> float:
    """A position in pixels from the top."""
    return round(height * (1 - axis.scale.at(value)), 1)


def stretched(axis: Axis, value: float) -> float:
    """A position across, in the coordinates of lines."""
    return round(STRETCH * axis.scale.at(value), 1)


def lines_layer(height: int, *children: object) -> Html:
    """Lines are stretched to the width of the drawing; their thickness is not."""
    return svg(
        "svg",
        *children,
        class_="lines",
        view_box=f"0 0 {STRETCH} {height}",
        preserve_aspect_ratio="none",
        width="100%",
        height=height,
    )


def draw(chart: Chart, *layers: object) -> Html:
    """The chart as a figure. The layers are drawn over the grid, in this order."""
    height = chart.height
    heading = tag("h4", chart.title) if chart.title else None
    caption = tag("figcaption", heading, tag("p", chart.about) if chart.about else None)
    frame = tag(
        "div",
        _y_axis(chart, height),
        svg(
            "svg",
            _grid(chart, height),
            *layers,
            class_="plot",
            width="100%",
            height=height,
            data_hover=None if chart.hover is None else json.dumps(chart.hover, separators=(",", ":")),
        ),
        _x_axis(chart.x),
        class_="frame",
        role="img",
        tabindex=0 if chart.hover is not None else None,
        aria_label=chart.spoken or f"{chart.title}: {chart.y.label} against {chart.x.label}",
    )
    return tag(
        "figure",
        caption if chart.title or chart.about else None,
        legend(chart.legend),
        tag("p", chart.y.label, class_="ylabel", aria_hidden="true") if chart.y.label else None,
        frame,
        tag("p", chart.x.label, class_="xlabel", aria_hidden="true") if chart.x.label else None,
        chart.control,
        numbers(chart),
        class_=f"chart {chart.classes}".strip(),
        data_key=chart.key or None,
    )


def legend(entries: Sequence[LegendEntry]) -> Html | None:
    if not entries:
        return None
    items = [tag("li", swatch(entry.mark, entry.look), tag("span", entry.word)) for entry in entries]
    return tag("ul", items, class_="legend")


def swatch(mark: str, look: str) -> Html:
    """The mark of a legend."""
    shape = {
        "line": svg("line", x1=1, y1=7, x2=21, y2=7, class_=f"stroke {look}"),
        "dashes": svg("line", x1=1, y1=7, x2=21, y2=7, class_=f"stroke dashed {look}"),
        "dots": svg("line", x1=1, y1=7, x2=21, y2=7, class_=f"stroke dotted {look}"),
        "dot": svg("circle", cx=11, cy=7, r=4.5, class_=f"fill {look}"),
        "ring": svg("circle", cx=11, cy=7, r=4.5, class_=f"ring {look}"),
        "square": svg("rect", x=5, y=1, width=12, height=12, class_=f"fill {look}"),
        "star": svg("path", d=star(11, 7, 6.5), class_=f"fill {look}"),
        "diamond": svg("path", d="M11 1.5L16.5 7L11 12.5L5.5 7Z", class_=f"mark {look}"),
        "circle": svg("circle", cx=11, cy=7, r=5.5, class_=f"mark {look}"),
    }[mark]
    return svg("svg", shape, width=22, height=14, aria_hidden="true")


def star(x: float, y: float, radius: float) -> str:
    """A star of five points around (x, y)."""
    corners = (
        (0, -1), (0.235, -0.324), (0.951, -0.309), (0.38, 0.124), (0.588, 0.809),
        (0, 0.4), (-0.588, 0.809), (-0.38, 0.124), (-0.951, -0.309), (-0.235, -0.324),
    )  # fmt: skip
    return "M" + "L".join(f"{x + radius * a:.1f} {y + radius * b:.1f}" for a, b in corners) + "Z"


def numbers(chart: Chart) -> Html | None:
    """The table behind a chart, closed until someone opens it."""
    if chart.numbers is None:
        return None
    columns, rows = chart.numbers
    return tag(
        "details",
        tag("summary", "Numbers", tag("span", f" of: {chart.title}", class_="hidden")),
        table(columns, rows, label=f"Numbers of the chart {chart.title}"),
        class_="numbers",
        data_key=f"{chart.key or chart.title}-numbers",
    )


def _grid(chart: Chart, height: int) -> Html:
    across = [
        svg("line", x1="0", x2="100%", y1=y_place(chart.y, value, height), y2=y_place(chart.y, value, height))
        for value in chart.y.marks()
    ]
    down = [
        svg("line", x1=x_share(chart.x, value), x2=x_share(chart.x, value), y1=0, y2=height)
        for value in chart.x.marks()
    ]
    return svg("g", across, down, class_="grid")


def _y_axis(chart: Chart, height: int) -> Html:
    axis = chart.y
    names = chart.names or [(y_place(axis, value, height), axis.form(value)) for value in axis.marks()]
    labels = [svg("text", name, x="100%", dx=-8, y=place, dy="0.32em", text_anchor="end") for place, name in names]
    return svg("svg", labels, class_="yaxis", width="100%", height=height)


def _x_axis(axis: Axis) -> Html:
    labels, right = [], -100.0
    for value in axis.marks():
        share, word = axis.scale.at(value), axis.form(value)
        anchor = "start" if share < 0.03 else "end" if share > 0.97 else "middle"
        long = LETTER * len(word)
        left = NARROW * share - {"start": 0.0, "end": long, "middle": long / 2}[anchor]
        if left > right + LETTER:  # else the labels would touch on a narrow screen
            labels.append(svg("text", word, x=x_share(axis, value), y=16, text_anchor=anchor))
            right = left + long
    return svg("svg", labels, class_="xaxis", width="100%", height=22)


def titled(title: str, *children: object, about: str = "", key: str = "") -> Html:
    """A figure whose drawing is not made of axes."""
    caption = tag("figcaption", tag("h4", title), tag("p", about) if about else None)
    return tag("figure", caption, join(*children), class_="chart", data_key=key or None)
