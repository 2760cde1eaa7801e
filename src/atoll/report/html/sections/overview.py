"""Several runs in one report: a table of all, and their networks in one chart for each kind of cost."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.report.html.charts.frame import COLOURS, Axis, LegendEntry
from atoll.report.html.charts.scales import amount, count, duration, fitting, linear, percent
from atoll.report.html.charts.scatter import Layer, Mark, ScatterChart, scatter_chart
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import notes, section
from atoll.report.html.sections.front import COSTS
from atoll.report.html.tables import TableColumn, table
from atoll.report.reference import total
from atoll.report.view import STATES, RunView


def overview_section(views: Sequence[RunView]) -> Html:
    """Which run found what, and what it cost."""
    columns = [
        TableColumn("run", False),
        TableColumn("method", False),
        TableColumn("data", False),
        TableColumn("state", False),
    ]
    columns += [
        TableColumn("seed"),
        TableColumn("rounds"),
        TableColumn("test accuracy"),
        TableColumn("MACs"),
        TableColumn("sent"),
    ]
    columns += [TableColumn("computed"), TableColumn("time")]
    rows = []
    for number, one in enumerate(views, start=1):
        best, spent = one.best or {}, total(one)
        rows.append(
            [
                tag("a", one.name, href=f"#run-{number}"),
                one.method,
                one.data,
                STATES[one.state].partition(";")[0],
                str(one.seed),
                f"{one.rounds:,}",
                percent(1 - best["test"]["test_error"]) if "test" in best else "",
                count(best["objectives"]["macs"]) if "macs" in best.get("objectives", {}) else "",
                amount(spent.bytes_up),
                count(spent.client_macs),
                duration(one.digest.seconds.last) if len(one.digest.seconds) else "",
            ]
        )
    data = list(dict.fromkeys(one.data for one in views))
    warning = (
        notes(
            "Not the same data",
            [f"The runs are on different data: {', '.join(data)}. Their errors cannot be compared."],
        )
        if len(data) > 1
        else None
    )
    charts = [
        chart
        for name in data
        for cost in COSTS
        if (chart := _chart([one for one in views if one.data == name], cost, name))
    ]
    words = tag("div", tag("p", _in_words(views)), class_="summary")
    return section("overview", "All runs", words, table(columns, rows, label="Runs", sortable=True), warning, charts)


def _in_words(views: Sequence[RunView]) -> str:
    """Which run has the highest test accuracy, and which costs its clients least."""
    methods = ", ".join(dict.fromkeys(one.method for one in views))
    data = ", ".join(dict.fromkeys(one.data for one in views))
    text = f"{len(views)} runs of {methods} on {data}."
    tested = {one: one.best["test"]["test_error"] for one in views if one.best is not None and "test" in one.best}
    if len({one.data for one in views}) > 1 or len(tested) < 2:
        return text
    best = min(tested, key=lambda one: tested[one])
    cheapest = min(tested, key=lambda one: total(one).bytes_up)
    text += (
        f" The recommended network of {best.name} answers the most test rows correctly, {percent(1 - tested[best])}."
    )
    if cheapest is not best:
        text += (
            f" {cheapest.name} sent the fewest bytes, {amount(total(cheapest).bytes_up)}, and answers "
            f"{percent(1 - tested[cheapest])} correctly."
        )
    return (
        f"{text} These are single runs: `atoll compare` says over several seeds which differences are more than chance."
    )


def _chart(views: Sequence[RunView], cost: str, data: str) -> Html | None:
    """The networks of all runs that know this cost. Runs that do not are in a chart of their own kind."""
    label, form = COSTS[cost]
    marks, entries = [], []
    for number, one in enumerate(views):
        look = f"c{number % COLOURS}"
        own = [
            Mark(
                float(entry["objectives"][cost]),
                float(entry["test"]["test_error"]) if "test" in entry else float(entry["objectives"]["test_error"]),
                f"{one.name}: {entry['id']}\ntest error {_test(entry)}, {form(entry['objectives'][cost])}",
                "dot" if one.digest.fronts else "star",
                look,
            )
            for entry in one.candidates
            if cost in entry["objectives"]
            and ("test" in entry or "test_error" in entry["objectives"])
            and not entry.get("owner")
        ]
        if own:
            entries.append(LegendEntry(one.name, look, "dot" if one.digest.fronts else "star"))
        marks += own
    if len(entries) < 2 or (cost != "macs" and cost != "connections"):
        return None
    return scatter_chart(
        ScatterChart(
            f"Networks of all runs on {data}",
            Axis(label, fitting([mark.x for mark in marks]), form, most=4),
            Axis("test error", linear([mark.y for mark in marks], zero=True), percent),
            [Layer("", marks)],
            about="A dot is a network of a search, a star a network that was trained as it is.",
            legend=entries,
            spoken=f"{len(marks)} networks of {len(entries)} runs by test error and {label}",
        )
    )


def _test(entry: object) -> str:
    assert isinstance(entry, dict)
    found = entry["test"]["test_error"] if "test" in entry else entry["objectives"]["test_error"]
    return percent(found)
