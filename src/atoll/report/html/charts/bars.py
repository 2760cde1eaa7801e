"""Bars: amounts beside each other, shares of a whole, and how often values occur."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from atoll.report.html.charts.frame import Axis, Chart, LegendEntry, draw, legend, x_share, y_place
from atoll.report.html.charts.scales import Form, Scale, linear, plain
from atoll.report.html.markup import Html, svg, tag
from atoll.report.html.tables import TableColumn


@dataclass(frozen=True)
class Bar:
    """One amount, with the text beside it."""

    name: str
    value: float
    text: str
    look: str = "c0"
    note: str = ""


def bar_list(title: str, bars: Sequence[Bar], *, about: str = "", logarithmic: bool = False) -> Html:
    """Horizontal bars from zero (or, on a logarithmic scale, from a tenth of the smallest), one below the other."""
    known = [bar.value for bar in bars if bar.value > 0]
    most = max(known, default=1.0)
    least = min(known, default=1.0) / 10
    items = []
    for bar in bars:
        share = bar.value / most
        if logarithmic and bar.value > 0:
            share = math.log(bar.value / least) / math.log(most / least)
        rect = svg("rect", x=0, y=3, width=f"{100 * max(0.0, share):.2f}%", height=14, rx=2, class_=f"fill {bar.look}")
        items.append(
            tag(
                "li",
                tag("span", bar.name, class_="name"),
                svg("svg", rect, width="100%", height=20, aria_hidden="true"),
                tag("span", bar.text, class_="value"),
                tag("span", bar.note, class_="aside") if bar.note else None,
            )
        )
    caption = tag("figcaption", tag("h4", title), tag("p", about) if about else None)
    return tag("figure", caption, tag("ul", items, class_="bars"), class_="chart")


def shares(parts: Sequence[tuple[float, str, str]], whole: float, *, width: int = 120, label: str = "") -> Html:
    """A bar of parts (amount, look, word) of a whole, for a cell of a table."""
    drawn, start = [], 0.0
    for value, look, _ in parts:
        if value > 0 and whole > 0:
            part = svg(
                "rect", x=f"{100 * start / whole:.2f}%", y=1, width=f"{100 * value / whole:.2f}%", height=12,
                class_=f"fill {look}",
            )  # fmt: skip
            drawn.append(part)
            start += value
    spoken = label or ", ".join(f"{word} {plain(value)}" for value, _, word in parts if value > 0)
    return svg(
        "svg", tag("title", spoken), drawn, class_="shares", width=width, height=14, role="img", aria_label=spoken
    )


def class_bars(counts: Sequence[tuple[str, int]], height: int = 24) -> Html:
    """A small bar for each class, for a cell of a table: its height is its share of the most frequent one."""
    most = max((number for _, number in counts), default=0) or 1
    width = 100 / max(1, len(counts))
    drawn = []
    for place, (_, number) in enumerate(counts):
        tall = round((height - 2) * number / most, 1) if number else 0
        drawn.append(
            svg("rect", x=f"{place * width + 0.1 * width:.2f}%", y=height - max(1.0, tall), width=f"{0.8 * width:.2f}%",
                height=max(1.0, tall), class_="fill c0" if number else "fill faint c6")
        )  # fmt: skip
    present = [f"{name}: {number:,}" for name, number in counts if number]
    spoken = ", ".join(present[:20]) + (f" and {len(present) - 20} more" if len(present) > 20 else "")
    wide = min(150, max(40, 11 * len(counts)))
    return svg(
        "svg", tag("title", spoken), drawn, width=wide, height=height, role="img", aria_label=spoken or "no rows"
    )


def share_legend(parts: Sequence[tuple[str, str]]) -> Html | None:
    """The legend of `shares`: (look, word)."""
    return legend([LegendEntry(word, look, "square") for look, word in parts])


def histogram(
    title: str,
    values: Sequence[float],
    *,
    x_label: str,
    form: Form = plain,
    bins: int = 12,
    about: str = "",
    key: str = "",
) -> Html | None:
    """How many values lie in each of some equal ranges."""
    known = [value for value in values if math.isfinite(value)]
    if len(known) < 2 or max(known) == min(known):
        return None
    low, high = min(known), max(known)
    number = min(bins, max(3, math.ceil(math.sqrt(len(known)) * 1.6)))
    size = (high - low) / number
    counts = [0] * number
    for value in known:
        counts[min(number - 1, int((value - low) / size))] += 1
    x = Axis(x_label, Scale(low, high), form)
    y = Axis("clients", linear([0, max(counts)], zero=True), plain)
    y = Axis(y.label, y.scale, plain, [tick for tick in y.scale.ticks(4) if tick == int(tick)])
    height = 150
    drawn = []
    for place, count in enumerate(counts):
        top = y_place(y, count, height)
        drawn.append(
            svg(
                "rect", x=x_share(x, low + place * size), width=f"{100 / number - 0.6:.2f}%", y=top,
                height=round(height - top, 1), class_="fill c0",
            )
        )  # fmt: skip
    rows = [
        [f"{form(low + place * size)} to {form(low + (place + 1) * size)}", str(count)]
        for place, count in enumerate(counts)
    ]
    chart = Chart(
        title,
        x,
        y,
        about,
        numbers=([TableColumn(x_label, False), TableColumn("clients")], rows),
        height=height,
        spoken=f"{title}: from {form(low)} to {form(high)}, {len(known)} clients",
        key=key,
    )
    return draw(chart, drawn)
