"""Cells of a DARTS network: two inputs, four nodes, their operations, and the output.

Every operation has a row of its own, and boxes descend from left to right, so that nothing overlaps for any genotype: a
state's line runs down from its box, a dot marks where an operation reads it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.report.html.markup import Html, svg, tag

STATES = ("c(k-2)", "c(k-1)", "0", "1", "2", "3")
LOOKS = ("ink", "c1", "c0", "c2", "c3", "c4")  # of the states
KINDS = {"skip": "skip", "max": "pool", "avg": "pool", "sep": "sep", "dil": "dil"}
ROW, BOX, ACROSS = 40.0, 104.0, 176.0
LEFT, TOP = 152.0, 74.0  # where the first operation stands
KEPT = 2  # operations of a node


def cell_drawing(pairs: Sequence[Sequence[Any]], title: str) -> Html:
    """One cell: (operation, state that it reads), two for each node."""
    rows = ordered(pairs)
    nodes = len(rows) // KEPT
    places = [(40.0, 26.0), (112.0, 26.0)]
    places += [(LEFT + BOX + 44 + ACROSS * node, TOP + ROW * (KEPT * node + 0.5)) for node in range(nodes)]
    right = places[-1][0] + 62
    height = TOP + ROW * len(rows)
    last = {source: row for row, (_, source) in enumerate(rows)}  # the last row that reads a state
    drawn: list[Html] = []
    for state, (x, y) in enumerate(places):
        if state in last:
            drawn.append(
                svg(
                    "path",
                    d=f"M{x:.0f} {y:.0f}V{TOP + ROW * last[state]:.0f}",
                    class_=f"edge {LOOKS[state]}",
                    stroke_width=1.8,
                )
            )
    for row, (word, source) in enumerate(rows):
        drawn.append(_operation(word, row, places[source][0], LOOKS[source], places[KEPT + row // KEPT]))
    for state, (x, y) in enumerate(places):
        drawn.append(_state(state, x, y, right if state >= KEPT else None))
    drawn.append(svg("rect", x=right - 2, y=TOP - 18, width=44, height=height - TOP - 4, rx=4, class_="node"))
    drawn.append(svg("text", "c(k)", x=right + 20, y=(TOP + height) / 2 - 16, text_anchor="middle"))
    return svg(
        "svg",
        tag("title", title),
        drawn,
        view_box=f"0 0 {right + 60:.0f} {height + 6:.0f}",
        width=round(right + 60),
        height=round(height + 6),
        role="img",
    )


def ordered(pairs: Sequence[Sequence[Any]]) -> list[tuple[str, int]]:
    """The operations row by row: by node, then by source."""
    rows: list[tuple[str, int]] = []
    for start in range(0, len(pairs), KEPT):
        rows += sorted(((str(word), int(source)) for word, source in pairs[start : start + KEPT]), key=lambda p: p[1])
    return rows


def _operation(word: str, row: int, source: float, look: str, node: tuple[float, float]) -> Html:
    """From the state's line along the row into the operation, and from there to its node."""
    left, y = LEFT + ACROSS * (row // KEPT), TOP + ROW * row
    x, up = node
    end = up - 9 if y < up else up + 9
    return svg(
        "g",
        svg(
            "g",
            svg("circle", cx=source, cy=y, r=3.4, class_="arrow"),
            svg("path", d=f"M{source:.0f} {y:.0f}H{left - 7:.0f}", class_="edge", stroke_width=1.6),
            svg("path", d=f"M{left:.0f} {y:.0f}l-8 -4v8z", class_="arrow"),
            class_=look,
        ),
        svg("rect", x=left, y=y - 14, width=BOX, height=28, rx=5, class_=f"op {KINDS.get(word.partition('_')[0], '')}"),
        svg("text", word.replace("_", " "), x=left + BOX / 2, y=y + 4, text_anchor="middle", class_="small"),
        svg(
            "g",
            svg("path", d=f"M{left + BOX:.0f} {y:.0f}L{x - 19:.0f} {end:.0f}", class_="edge", stroke_width=1.4),
            svg("path", d=f"M{x - 12:.0f} {end:.0f}l-8 -4v8z", class_="arrow"),
            class_="ink",
        ),
    )


def _state(state: int, x: float, y: float, right: float | None) -> Html:
    if right is None:
        box = svg("rect", x=x - 32, y=y - 15, width=64, height=30, rx=5, class_="node")
        return svg("g", box, svg("text", STATES[state], x=x, y=y + 4, text_anchor="middle"))
    return svg(
        "g",
        svg("path", d=f"M{x + 14:.0f} {y:.0f}H{right - 10:.0f}", class_="edge ink", stroke_width=1, opacity=0.45),
        svg("path", d=f"M{right - 2:.0f} {y:.0f}l-8 -4v8z", class_="arrow ink", opacity=0.45),
        svg("circle", cx=x, cy=y, r=14, class_="node hiddenlayer"),
        svg("text", STATES[state] if state < len(STATES) else str(state - KEPT), x=x, y=y + 4, text_anchor="middle"),
    )
