"""A confusion matrix as a table of shaded cells."""

from __future__ import annotations

import math
from collections.abc import Sequence

from atoll.report.html.markup import Html, tag

SHADES = 8  # classes h0 to h8 of the style sheet


def confusion_matrix(confusion: Sequence[Sequence[int]], classes: Sequence[str], label: str) -> Html:
    """Rows are true classes, columns answers; a cell is shaded by its share of the row."""
    head = tag(
        "tr",
        tag("th", "true class", scope="col"),
        (tag("th", name, scope="col", class_="n") for name in classes),
        tag("th", "rows", scope="col", class_="n"),
    )
    body = []
    for place, (name, row) in enumerate(zip(classes, confusion, strict=True)):
        rows = sum(row)
        cells = [
            tag(
                "td",
                f"{count:,}" if count else "",
                class_=f"heat h{shade(count, rows)}{' right' if answer == place else ''}",
                title=f"{name} answered as {classes[answer]}: {count:,} of {rows:,} rows",
            )
            for answer, count in enumerate(row)
        ]
        body.append(tag("tr", tag("th", name, scope="row"), cells, tag("td", f"{rows:,}", class_="n")))
    inner = tag("table", tag("thead", head), tag("tbody", body), class_="matrix")
    return tag("div", inner, class_="scroll", role="region", aria_label=label, tabindex=0)


def shade(count: int, rows: int) -> int:
    """The shade of a share: small ones differ more than large ones."""
    return 0 if not count or not rows else max(1, round(SHADES * math.sqrt(count / rows)))
