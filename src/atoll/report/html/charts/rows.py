"""Rows of intervals: a mean with its ends, and the single values behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atoll.report.html.charts.frame import Axis, x_share
from atoll.report.html.charts.scales import Form, Scale, linear
from atoll.report.html.markup import Html, svg, tag


@dataclass(frozen=True)
class IntervalRow:
    """A mean, its interval (NaN: none), the values that it is the mean of, and what is written beside it."""

    name: str
    mean: float
    low: float
    high: float
    values: Sequence[float]
    text: str
    look: str = "c0"
    note: str = ""
    strong: bool = False


def interval_rows(
    title: str,
    rows: Sequence[IntervalRow],
    *,
    label: str,
    form: Form,
    about: str = "",
    zero: bool = False,
    scale: Scale | None = None,
) -> Html | None:
    """One row for each mean, on a common axis; with `zero` there is a line at zero."""
    known = [value for row in rows for value in (row.mean, row.low, row.high, *row.values) if math.isfinite(value)]
    if not known:
        return None
    axis = Axis(label, scale or linear([*known, 0.0] if zero else known), form)
    origin = svg("line", x1=x_share(axis, 0), x2=x_share(axis, 0), y1=0, y2=30, class_="boundary") if zero else None
    items = [
        tag(
            "li",
            tag("span", row.name, class_="name"),
            svg("svg", _grid(axis), origin, _row(row, axis), width="100%", height=30, aria_hidden="true"),
            tag("span", row.text, class_="value"),
            tag("span", row.note, class_="aside") if row.note else None,
            class_="strong" if row.strong else None,
        )
        for row in rows
    ]
    ticks = [
        svg("text", form(value), x=x_share(axis, value), y=14, text_anchor=_side(axis, value)) for value in axis.marks()
    ]
    foot = tag(
        "li",
        tag("span", "", class_="name"),
        svg("svg", ticks, width="100%", height=20, class_="xaxis"),
        tag("span", "", class_="value"),
        class_="foot",
        aria_hidden="true",
    )
    caption = tag("figcaption", tag("h4", title), tag("p", about) if about else None)
    below = tag("p", label, class_="xlabel", aria_hidden="true")
    return tag("figure", caption, tag("ul", items, foot, class_="bars intervals"), below, class_="chart")


def _grid(axis: Axis) -> Html:
    marks = [svg("line", x1=x_share(axis, value), x2=x_share(axis, value), y1=0, y2=30) for value in axis.marks()]
    return svg("g", marks, class_="grid")


def _row(row: IntervalRow, axis: Axis) -> list[Html]:
    drawn = [
        svg("circle", cx=x_share(axis, value), cy=15, r=3, class_=f"fill faint {row.look}")
        for value in row.values
        if math.isfinite(value) and len(row.values) > 1
    ]
    if math.isfinite(row.low):
        low, high = x_share(axis, row.low), x_share(axis, row.high)
        drawn.append(svg("line", x1=low, x2=high, y1=15, y2=15, class_=f"stroke {row.look}"))
        drawn += [svg("line", x1=end, x2=end, y1=10, y2=20, class_=f"stroke {row.look}") for end in (low, high)]
    if math.isfinite(row.mean):
        drawn.append(svg("circle", cx=x_share(axis, row.mean), cy=15, r=5, class_=f"fill {row.look}"))
    return drawn


def _side(axis: Axis, value: float) -> str:
    share = axis.scale.at(value)
    return "start" if share < 0.04 else "end" if share > 0.96 else "middle"
