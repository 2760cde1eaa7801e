"""Tables that scroll within themselves on a narrow screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from atoll.report.html.markup import Html, tag


class TableColumn(NamedTuple):
    """A column: its heading, and whether it holds numbers, which are aligned to the right."""

    heading: str
    numeric: bool = True
    hint: str = ""  # what the heading means


def table(
    columns: Sequence[TableColumn],
    rows: Sequence[Sequence[object]],
    *,
    label: str,
    sortable: bool = False,
    marked: Sequence[int] = (),
) -> Html:
    """A table with a name for screen readers. The first cell of a row is its heading; rows in `marked` stand out."""
    head = tag(
        "tr",
        (
            tag("th", one.heading, scope="col", class_="n" if one.numeric else None, title=one.hint or None)
            for one in columns
        ),
    )
    body = [
        tag(
            "tr",
            (
                tag(
                    "th" if place == 0 else "td",
                    cell,
                    scope="row" if place == 0 else None,
                    class_=_class(columns[place]),
                )
                for place, cell in enumerate(row)
            ),
            class_="marked" if number in marked else None,
        )
        for number, row in enumerate(rows)
    ]
    inner = tag("table", tag("thead", head), tag("tbody", body), class_="sortable" if sortable else None)
    return tag("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def _class(column: TableColumn) -> str | None:
    return "n" if column.numeric else None


def facts(pairs: Sequence[tuple[str, object]]) -> Html:
    """Short facts, each a word and its value."""
    return tag("dl", (tag("div", tag("dt", word), tag("dd", value)) for word, value in pairs), class_="facts")
