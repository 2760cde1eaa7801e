"""Tables for the terminal: classes per client, device profiles, costs, and the state of this installation."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

from atoll.data import Federated, catalogue
from atoll.data.federated import histogram
from atoll.devices import DeviceProfile
from atoll.report.figures.canvas import short
from atoll.report.figures.cost import QUANTITIES, RunCost
from atoll.report.terminal import cell

MOST_CLIENTS = 40  # a longer table leaves out the middle
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
    """Rows per class and client."""
    counts = histogram(federated)
    table = Table(title=f"{len(federated.names)} clients, {int(counts.sum()):,} rows")
    for heading in ("client", "rows", *federated.schema.classes):
        table.add_column(cell(heading), justify="left" if heading == "client" else "right")
    shown = list(range(len(federated.names)))
    if len(shown) > MOST_CLIENTS:
        shown = [*shown[: MOST_CLIENTS // 2], -1, *shown[-MOST_CLIENTS // 2 :]]
    for client in shown:
        if client < 0:
            table.add_row(f"... {len(federated.names) - MOST_CLIENTS} more")
            continue
        row = counts[client]
        cells = [str(count) if count else "." for count in row.tolist()]
        table.add_row(cell(federated.names[client]), str(int(row.sum())), *cells)
    return table


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


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:,.0f}" if ratio >= 1000 else f"{ratio:.3g}"


def health_table(data_dir: Path | None) -> Table:
    """Versions, cores and data."""
    table = Table("component", "found")
    table.add_row("python", platform.python_version())
    for name in LIBRARIES:
        try:
            table.add_row(name, version(name))
        except PackageNotFoundError:
            table.add_row(name, "[red]missing: run `make install`")
    table.add_row("cores", f"{os.cpu_count()} (by default one worker per core)")
    folder = data_dir or os.environ.get("ATOLL_DATA") or "none: set ATOLL_DATA or --data-dir"
    table.add_row("data folder", cell(str(folder)))
    present = [entry.name for entry in catalogue(data_dir) if entry.present]
    table.add_row("data sets present", ", ".join(present))
    return table
