"""Lines over rounds: accuracy, cost, hypervolume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atoll.report.html.charts.frame import (
    HEIGHT,
    Axis,
    Chart,
    LegendEntry,
    draw,
    lines_layer,
    stretched,
    x_share,
    y_place,
)
from atoll.report.html.charts.scales import Form, Scale, linear, plain, whole
from atoll.report.html.markup import Html, svg
from atoll.report.html.tables import TableColumn

POINTS = 320  # of a line: a screen shows no more
ROWS = 40  # of the table behind a chart
FEW = 30  # points up to which each is marked

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Line:
    """One line. `band` is an interval around it: (x, low, high)."""

    name: str
    points: Points
    look: str = "c0"
    style: str = "line"  # line, dashes, dots, faint
    steps: bool = False
    band: Sequence[tuple[float, float, float]] = ()


@dataclass(frozen=True)
class LineChart:
    """What is to be drawn."""

    title: str
    lines: Sequence[Line]
    y_label: str
    form: Form = plain
    about: str = ""
    x_label: str = "round"
    x_form: Form = plain
    x: Scale | None = None
    y: Scale | None = None
    zero: bool = False
    boundaries: Sequence[tuple[float, str]] = ()  # where a phase begins, and its name
    key: str = ""
    height: int = HEIGHT
    points: int = POINTS


def line_chart(wanted: LineChart) -> Html | None:
    """The chart, or None if no line has a point."""
    lines = [line for line in wanted.lines if line.points]
    if not lines:
        return None
    shown = {id(line): thinned(line.points, wanted.points) for line in lines}
    xs = [x for line in lines for x, _ in line.points]
    ys = [y for line in lines for _, y in line.points] + [y for line in lines for _, *ends in line.band for y in ends]
    x_axis = Axis(wanted.x_label, wanted.x or whole(min(xs), max(xs)), wanted.x_form)
    if wanted.x is None and wanted.x_form is plain and all(x == int(x) for x in xs):
        x_axis = Axis(wanted.x_label, x_axis.scale, plain, [tick for tick in x_axis.scale.ticks() if tick == int(tick)])
    y_axis = Axis(wanted.y_label, wanted.y or linear(ys, zero=wanted.zero), wanted.form)
    height = wanted.height
    bands = [_band(line, x_axis, y_axis, height) for line in lines if line.band]
    paths = [_path(line, shown[id(line)], x_axis, y_axis, height) for line in lines]
    marks = [
        _marks(line, shown[id(line)], x_axis, y_axis, height)
        for line in lines
        if len(line.points) <= FEW and line.style != "faint"
    ]
    named = [line for line in lines if line.name]
    chart = Chart(
        wanted.title,
        x_axis,
        y_axis,
        wanted.about,
        [_entry(line) for line in named] if len(named) > 1 else (),
        _hover(lines, shown, x_axis, wanted),
        _numbers(lines, wanted),
        height,
        _spoken(wanted, lines),
        key=wanted.key,
    )
    return draw(chart, _boundaries(wanted, x_axis, height), lines_layer(height, bands, paths), marks)


def thinned(points: Points, most: int) -> Points:
    """At most about `most` points. Of each stretch the lowest and the highest remain, so that no peak is lost."""
    if len(points) <= most:
        return points
    stretches, heights = most // 2, [height for _, height in points]
    kept: list[tuple[float, float]] = [points[0]]
    for place in range(stretches):
        first, end = place * len(points) // stretches, (place + 1) * len(points) // stretches
        part = heights[first:end]
        for here in sorted({part.index(min(part)), part.index(max(part))}):
            if points[first + here] != kept[-1]:
                kept.append(points[first + here])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def _entry(line: Line) -> LegendEntry:
    if line.style == "faint":
        return LegendEntry(line.name, f"{line.look} faint")
    return LegendEntry(line.name, line.look, line.style)


def _path(line: Line, points: Points, x: Axis, y: Axis, height: int) -> Html:
    words = {"dashes": " dashed", "dots": " dotted", "faint": " faint"}.get(line.style, "")
    return svg("path", d=path_of(points, x, y, height, line.steps), class_=f"stroke {line.look}{words}")


def path_of(points: Points, x: Axis, y: Axis, height: int, steps: bool = False) -> str:
    """The commands of a path through these points."""
    parts: list[str] = []
    for place, (across, up) in enumerate(points):
        here = f"{stretched(x, across):g} {y_place(y, up, height):g}"
        if place == 0:
            parts.append(f"M{here}")
        elif steps:
            parts.append(f"H{stretched(x, across):g}V{y_place(y, up, height):g}")
        else:
            parts.append(f"L{here}")
    return "".join(parts)


def _band(line: Line, x: Axis, y: Axis, height: int) -> Html:
    def inside(value: float) -> float:
        return min(float(height), max(0.0, y_place(y, value, height)))

    upper = [f"{stretched(x, at):g} {inside(high):g}" for at, _, high in line.band]
    lower = [f"{stretched(x, at):g} {inside(low):g}" for at, low, _ in reversed(line.band)]
    return svg("path", d="M" + "L".join([*upper, *lower]) + "Z", class_=f"band {line.look}")


def _marks(line: Line, points: Points, x: Axis, y: Axis, height: int) -> list[Html]:
    return [
        svg("circle", cx=x_share(x, across), cy=y_place(y, up, height), r=2.6, class_=f"fill {line.look}")
        for across, up in points
    ]


def _boundaries(wanted: LineChart, x: Axis, height: int) -> list[Html]:
    found = []
    for at, word in wanted.boundaries:
        share = x.scale.at(at)
        if not 0.01 < share < 0.995:
            continue
        found.append(svg("line", x1=x_share(x, at), x2=x_share(x, at), y1=0, y2=height, class_="boundary"))
        end = share > 0.82
        found.append(
            svg("text", word, x=x_share(x, at), dx=-6 if end else 6, y=12, text_anchor="end" if end else "start",
                class_="note")
        )  # fmt: skip
    return found


def _hover(lines: Sequence[Line], shown: dict[int, Points], x: Axis, wanted: LineChart) -> dict[str, object]:
    places = sorted({at for line in lines for at, _ in shown[id(line)]})
    if len(places) > 2 * wanted.points:
        places = places[:: math.ceil(len(places) / (2 * wanted.points))]
    series = []
    for line in lines:
        values = dict(line.points)
        if line.name or len(lines) == 1:
            series.append(
                {
                    "n": line.name or wanted.y_label,
                    "c": line.look,
                    "v": [wanted.form(values[at]) if at in values else "" for at in places],
                }
            )
    word = wanted.x_label
    return {
        "kind": "lines",
        "word": word,
        "xs": [wanted.x_form(at) for at in places],
        "at": [round(stretched(x, at)) for at in places],
        "series": series,
    }


def _numbers(lines: Sequence[Line], wanted: LineChart) -> tuple[list[TableColumn], list[list[str]]]:
    named = [line for line in lines if line.name or len(lines) == 1]
    places = sorted({at for line in named for at, _ in line.points})
    every = max(1, math.ceil(len(places) / ROWS))
    chosen = places[::every]
    if places and chosen[-1] != places[-1]:
        chosen.append(places[-1])
    values = [dict(line.points) for line in named]
    columns = [TableColumn(wanted.x_label), *(TableColumn(line.name or wanted.y_label) for line in named)]
    rows = [[wanted.x_form(at), *(wanted.form(own[at]) if at in own else "" for own in values)] for at in chosen]
    return columns, rows


def _spoken(wanted: LineChart, lines: Sequence[Line]) -> str:
    parts = []
    for line in lines:
        if line.name or len(lines) == 1:
            (first, start), (last, end) = line.points[0], line.points[-1]
            parts.append(
                f"{line.name or wanted.y_label} from {wanted.form(start)} at {wanted.x_label} "
                f"{wanted.x_form(first)} to "
                f"{wanted.form(end)} at {wanted.x_form(last)}"
            )
    return f"{wanted.title}: {'; '.join(parts)}"


def sparkline(points: Points, look: str = "c0", width: int = 110, height: int = 26) -> Html:
    """A small line without axes, for a row of a table."""
    if not points:
        return Html("")
    shown = thinned(points, 60)
    xs, ys = [x for x, _ in points], [y for _, y in points]
    x, y = Axis("", whole(min(xs), max(xs))), Axis("", linear(ys, room=0.1))
    if len(points) == 1:
        layer: object = svg("circle", cx="50%", cy=height / 2, r=2, class_=f"fill {look}")
    else:
        layer = lines_layer(height, svg("path", d=path_of(shown, x, y, height), class_=f"stroke {look}"))
    return svg("svg", layer, class_="spark", width=width, height=height, aria_hidden="true")
