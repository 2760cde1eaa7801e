"""`atoll compare ROOT -o page.html`: the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from atoll.report.comparison.fronts import leading, runs_of
from atoll.report.comparison.rows import Comparison
from atoll.report.html.comparison.sections import (
    clients_section,
    cost_section,
    equal_section,
    errors_section,
    fronts_section,
    reaching_section,
    rows_table,
)
from atoll.report.html.comparison.words import enough_seeds, in_short
from atoll.report.html.markup import Html, lines, tag
from atoll.report.html.page import contents, notes, section, single_file, top
from atoll.report.html.tables import TableColumn, table
from atoll.run.sweep import plan_of

TITLES = {
    "summary": "In short",
    "equal": "On equal terms?",
    "errors": "Who is better?",
    "fronts": "Front of fronts",
    "reaching": "What an accuracy costs",
    "clients": "Worst clients",
    "cost": "Cost",
    "made": "How it was made",
}


def comparison_page(found: Comparison, folders: Sequence[Path] = ()) -> str:
    """The text of the page. Only the recommended network of each group is tested against the reference."""
    tested = replace(found, rows=leading(found.rows), every=found.rows)
    sections = {
        "summary": _summary(found, tested),
        "equal": equal_section(found),
        "errors": errors_section(found, tested),
        "fronts": fronts_section(found),
        "reaching": reaching_section(found),
        "clients": clients_section(found),
        "cost": cost_section(found),
        "made": _made(found, folders),
    }
    shown = {name: part for name, part in sections.items() if part is not None}
    data = found.rows[0].found[0].run.manifest["source"]
    groups = list(runs_of(found))
    title = f"{len(groups)} methods on {data}" if len(groups) > 1 else f"{groups[0]} on {data}"
    seeds = len({one.seed for row in found.rows for one in row.found})
    subtitle = f"{', '.join(groups)} · {seeds} seed{'' if seeds == 1 else 's'} · {datetime.now(UTC):%Y-%m-%d}"
    main = tag(
        "main",
        tag("h1", title),
        tag("p", subtitle, class_="subtitle"),
        contents([(name, TITLES[name]) for name in shown]),
        list(shown.values()),
        id="content",
    )
    foot = tag("footer", "Made by Atoll from run directories. This file is complete: it loads nothing from anywhere.")
    return single_file(title, tag("div", top("comparison"), main, foot, class_="page"))


def _summary(found: Comparison, tested: Comparison) -> Html:
    words = tag("div", (tag("p", text) for text in in_short(found, tested) if text), class_="summary")
    warnings = [text for text in (*found.notes, enough_seeds(tested)) if text]
    boxed = notes("What to know before you trust it", [text[:1].upper() + text[1:] for text in warnings])
    return section("summary", "In short", words, boxed, rows_table(found.rows))


def _made(found: Comparison, folders: Sequence[Path]) -> Html:
    commands = [str(plan["command"]) for folder in folders if (plan := plan_of(folder)).get("command")]
    places = " ".join(folder.name for folder in folders)
    commands.append(f"atoll compare {places} -o {folders[0].name if folders else 'page'}.html")
    rows = [
        [run.path.name, group, str(run.manifest["seed"]), str(run.manifest.get("versions", {}).get("atoll", ""))]
        for group, runs in runs_of(found).items()
        for run in runs
    ]
    columns = [TableColumn("run", False), TableColumn("group", False), TableColumn("seed"), TableColumn("Atoll", False)]
    words = (
        "Means and 95 % intervals are Student's, over seeds. Differences are paired by seed; their p-values are those "
        "of the exact sign-flip test, from eight common seeds on, corrected by Holm's rule over all rows of the table, "
        "as in the terminal. The chart shows of each group the network that its method recommends."
    )
    return section(
        "made",
        "How it was made",
        tag("pre", lines("\n".join(commands)), tabindex=0, role="region", aria_label="Commands"),
        tag("p", words),
        tag("details", tag("summary", f"All {len(rows)} runs"), table(columns, rows, label="All runs", sortable=True)),
    )
