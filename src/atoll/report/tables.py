"""Tables for the terminal: data and its clients, device profiles, costs, and the state of this installation."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from rich.table import Table

from atoll.data import Federated, catalogue
from atoll.data.federated import histogram
from atoll.data.files.check import Report
from atoll.data.files.summary import ColumnSummary
from atoll.devices import DeviceProfile
from atoll.report.comparison.tables import Section
from atoll.report.explain.stability import FeatureUse
from atoll.report.figures.canvas import short
from atoll.report.figures.cost import QUANTITIES, RunCost
from atoll.report.results import Column, fitted_table
from atoll.report.terminal import cell

MOST_FEATURES = 20
MOST_CLIENTS = 40  # a longer table leaves out the middle
MOST_CLASSES = 10  # named in one cell
LIBRARIES = (
    "atoll",
    "torch",
    "numpy",
    "pymoo",
    "scikit-learn",
    "safetensors",
    "pydantic",
    "typer",
    "rich",
    "matplotlib",
)


def partition_table(federated: Federated) -> Table:
    """Rows per class and client; clients that are held out come last."""
    counts = histogram(federated)
    title = f"{_clients(len(counts))}, {int(counts.sum()):,} rows"
    outside = histogram(federated, held_out=True)
    if len(outside):
        title += f"; held out: {_clients(len(outside))}, {int(outside.sum()):,} rows"
    table = Table(title=title)
    for heading in ("client", "rows", *federated.schema.classes):
        table.add_column(cell(heading), justify="left" if heading == "client" else "right")
    for names, rows, word in ((federated.names, counts, ""), (federated.held_out, outside, " (held out)")):
        table.add_section()
        for name, row in _shortened(list(zip(names, rows, strict=True))):
            if row is None:
                table.add_row(name)
                continue
            cells = [str(count) if count else "." for count in row.tolist()]
            table.add_row(cell(name + word), str(int(row.sum())), *cells)
    return table


def _shortened(rows: Sequence[tuple[str, Any]]) -> list[tuple[str, Any]]:
    """The rows of a table, of a long one the first and the last."""
    if len(rows) <= MOST_CLIENTS:
        return list(rows)
    half = MOST_CLIENTS // 2
    return [*rows[:half], (f"... {len(rows) - MOST_CLIENTS} more", None), *rows[-half:]]


def check_tables(report: Report) -> Iterator[Table | str]:
    """What checked data holds: its clients, its columns, and the error of a network that has learned nothing."""
    summary = report.summary
    if summary is None:
        return
    clients = Table(title=f"{_clients(len(summary.clients))}, {summary.rows:,} rows, {summary.form}")
    for heading, side in (("client", "left"), ("rows", "right"), ("missing", "right"), ("rows by class", "left")):
        clients.add_column(heading, justify=side, overflow="fold")  # type: ignore[arg-type]
    for name, one in _shortened([(one.name, one) for one in summary.clients]):
        if one is None:
            clients.add_row(name)
            continue
        word = " (held out)" if name in report.held_out else ""
        clients.add_row(cell(name + word), f"{one.rows:,}", _percent(one.missing), cell(_counts(one.classes)))
    yield clients
    if summary.columns:
        columns = Table(title="columns, over all clients")
        for heading in ("column", "kind", "missing", "least", "most"):
            columns.add_column(heading, justify="left" if heading in ("column", "kind") else "right", overflow="fold")
        for name, found in _shortened([(one.name, one) for one in summary.columns]):
            columns.add_row(cell(name), *(_column_cells(found) if found is not None else ()))
        yield columns
    if summary.baseline_error is not None:
        counts = summary.classes
        most = max(counts, key=lambda name: counts[name])
        yield cell(f"classes: {_counts(counts)}")
        yield cell(f"error of always answering '{most}': {_percent(summary.baseline_error)}")
    if report.test_rows:
        yield f"test rows that no client holds: {report.test_rows:,}"


def _clients(count: int) -> str:
    return "1 client" if count == 1 else f"{count:,} clients"


def _column_cells(one: ColumnSummary) -> list[str]:
    unit = f", {one.unit}" if one.unit else ""
    if one.different is not None:
        return [cell(one.kind + unit), _percent(one.missing), f"{one.different} values", ""]
    ends = [end if isinstance(end, str) else "" if end is None else f"{end:.6g}" for end in (one.least, one.most)]
    return [cell(one.kind + unit), _percent(one.missing), *ends]


def _counts(classes: Mapping[str, int]) -> str:
    """Rows by class, the most frequent first."""
    ordered = sorted(classes.items(), key=lambda pair: (-pair[1], pair[0]))
    more = f", {len(ordered) - MOST_CLASSES} more" if len(ordered) > MOST_CLASSES else ""
    return ", ".join(f"{name} {count:,}" for name, count in ordered[:MOST_CLASSES]) + more


def _percent(share: float) -> str:
    return "." if share == 0 else f"{100 * share:.1f} %"


def devices_table(profiles: Mapping[str, DeviceProfile]) -> Table:
    """The properties of device profiles, one column per profile."""
    table = Table("property")
    for name in profiles:
        table.add_column(cell(name), justify="right")
    rows: dict[str, list[float]] = {
        "computes, GMAC/s": [profile.macs_per_second / 1e9 for profile in profiles.values()],
        "sends, MB/s": [profile.uplink / 1e6 for profile in profiles.values()],
        "receives, MB/s": [profile.downlink / 1e6 for profile in profiles.values()],
        "nJ per MAC": [profile.joules_per_mac * 1e9 for profile in profiles.values()],
        "nJ per byte": [profile.joules_per_byte * 1e9 for profile in profiles.values()],
        "µs per layer": [profile.seconds_per_layer * 1e6 for profile in profiles.values()],
        "layers in the table": [len(profile.layers.root) for profile in profiles.values()],
    }
    for heading, values in rows.items():
        table.add_row(heading, *(f"{value:,.0f}" if value >= 1000 else f"{value:.3g}" for value in values))
    table.caption = "\n".join(cell(f"{name}: {profile.description}") for name, profile in profiles.items())
    table.caption_justify = "left"
    return table


def cost_table(costs: Sequence[RunCost], against: RunCost, device: str | None) -> Table:
    """One column per run: all clients together, the mean per client, and the ratio to `against`."""
    on = f" on a device '{device}'" if device else ""
    table = Table("", title=cell(f"Cost to the clients{on}"))
    for one in costs:
        table.add_column(cell(one.name), justify="right")
    table.add_row("rounds", *(f"{one.rounds:,}" for one in costs))
    table.add_row("clients", *(f"{one.clients:,}" for one in costs))
    clocks = [one.account.simulated_seconds for one in costs]
    table.add_row("tasks", *(f"{one.account.tasks:,}" for one in costs), end_section=not any(clocks))
    if any(clocks):  # the duration of the search, not a sum over clients
        table.add_row("virtual seconds", *(f"{seconds:,.4g}" for seconds in clocks), end_section=True)
    for name, words in QUANTITIES.items():
        if against.amount(name) is not None:
            table.add_row(words, *(short(one.amount(name) or 0) for one in costs))
            table.add_row("  per client", *(short(one.per_client(name) or 0) for one in costs))
            times = f"  times that of {against.name}"
            table.add_row(cell(times), *(_times(one.ratio(name, against)) for one in costs), end_section=True)
    return table


def comparison_tables(sections: Sequence[Section], width: int) -> list[Table]:
    """The tables of a comparison; columns that do not fit are left out, the last first."""
    return [
        fitted_table(
            section.title,
            columns[:2],
            columns[2:],
            width,
        )
        for section in sections
        if (
            columns := [
                Column(heading, [row[place] for row in section.rows], left=place == 0, widest=28)
                for place, heading in enumerate(section.columns)
            ]
        )
    ]


def stability_table(found: Sequence[FeatureUse], width: int) -> Table:
    """The features that runs of a sweep use, the most used first."""
    used = [one for one in found if one.used]
    shown = used[:MOST_FEATURES]
    more = f", {len(used) - len(shown)} more in the file" if len(used) > len(shown) else ""
    columns = [
        Column("feature", [one.name for one in shown], left=True, widest=36),
        Column("runs", [f"{one.used} of {one.runs}" for one in shown]),
        Column("importance", ["" if one.importance is None else f"{one.importance:.4f}" for one in shown]),
        Column("deviation", ["" if one.deviation is None else f"{one.deviation:.4f}" for one in shown]),
    ]
    return fitted_table(f"{len(used)} of {len(found)} features are used{more}", columns, [], width)


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def health(data_dir: Path | None) -> dict[str, Any]:
    """Versions, cores and data, for programs; a package that is missing has no version."""
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = None
    folder = data_dir or os.environ.get("ATOLL_DATA")
    return {
        "python": platform.python_version(),
        "versions": found,
        "cores": os.cpu_count(),
        "data_folder": None if folder is None else str(folder),
        "data_sets": [entry.name for entry in catalogue(data_dir) if entry.present],
    }


def health_table(data_dir: Path | None) -> Table:
    """The same for people."""
    found = health(data_dir)
    table = Table("component", "found")
    table.add_row("python", found["python"])
    for name, number in found["versions"].items():
        table.add_row(name, number or "[red]missing: run `make install`")
    table.add_row("cores", f"{found['cores']} (by default one worker per core)")
    table.add_row("data folder", cell(found["data_folder"] or "none: set ATOLL_DATA or --data-dir"))
    table.add_row("data sets present", ", ".join(found["data_sets"]))
    return table
