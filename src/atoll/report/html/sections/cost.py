"""What the search cost its clients, against federated averaging of a standard network."""

from __future__ import annotations

from atoll.core.ledger import Account
from atoll.report.html.charts.bars import Bar, bar_list
from atoll.report.html.charts.lines import POINTS
from atoll.report.html.charts.scales import amount, count, duration
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import section
from atoll.report.html.sections.rounds import cost_charts
from atoll.report.html.tables import TableColumn, table
from atoll.report.reference import Reference, joules, total
from atoll.report.view import RunView

QUANTITIES = (
    ("sent by clients", lambda account: account.bytes_up, amount),
    ("received by clients", lambda account: account.bytes_down, amount),
    ("computed by clients", lambda account: account.client_macs, lambda value: f"{count(value)} MACs"),
    ("virtual seconds", lambda account: account.simulated_seconds, duration),
    ("energy of a phone's profile", joules, lambda value: f"{count(value)} J"),
)


def cost_section(view: RunView, reference: Reference | None, prefix: str = "", points: int = POINTS) -> Html | None:
    """The ledger: totals, against the reference, and round by round."""
    spent = total(view)
    parts: list[Html] = []
    if reference is not None:
        parts.append(_against(spent, reference, view.method))
    parts.append(_totals(view, spent, reference))
    charts = cost_charts(view, prefix, points)
    if charts:
        parts.append(tag("div", charts, class_="charts"))
    lead = (
        "Bytes of the wire format; MACs are convolution and linear multiply-accumulates, a training pass counts three."
    )
    return section(f"{prefix}cost", "What it cost the clients", parts, lead=lead) if view.rounds else None


def _against(spent: Account, reference: Reference, method: str) -> Html:
    bars = []
    for name, value, form in QUANTITIES:
        here, there = value(spent), value(reference.account)
        if here and there:
            bars.append(
                Bar(name, here / there, f"{_ratio(here / there)} times", "c0", f"{form(here)} against {form(there)}")
            )
    how = (
        f"measured in the run {reference.source}, {reference.rounds:,} rounds"
        if reference.measured
        else f"computed by the same rules for the same clients and {reference.rounds:,} rounds, not run"
    )
    return bar_list(
        f"{method} as a multiple of federated averaging",
        [Bar("federated averaging", 1.0, "1", "c6"), *bars],
        about=f"Federated averaging of {reference.network}, {how}.",
    )


def _ratio(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:,.0f}"


def _totals(view: RunView, spent: Account, reference: Reference | None) -> Html:
    clients = int(view.manifest["data"]["clients"])
    columns = [TableColumn("quantity", False), TableColumn("this run"), TableColumn("mean per client")]
    if reference is not None:
        columns += [TableColumn("federated averaging"), TableColumn("ratio")]
    rows = []
    for name, value, form in QUANTITIES:
        here = value(spent)
        if not here:
            continue
        row = [name, form(here), "" if name == "virtual seconds" else form(here / clients)]
        if reference is not None:
            there = value(reference.account)
            row += [form(there), _ratio(here / there)] if there else ["not known", ""]
        rows.append(row)
    rows.append(["tasks", f"{spent.tasks:,}", f"{spent.tasks / clients:,.1f}", *([""] * (len(columns) - 3))])
    return table(columns, rows, label="Cost to the clients")
