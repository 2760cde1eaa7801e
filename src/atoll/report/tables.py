"""Tables for the terminal that are not about a run: who holds which classes, and how this installation is."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from rich.table import Table

from atoll.data import Federated, catalogue
from atoll.data.summary import histogram
from atoll.report.terminal import cell

MOST_CLIENTS = 40  # more lines than that nobody reads: the middle ones are left out
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


def health_table(data_dir: Path | None) -> Table:
    """Versions, cores and data."""
    table = Table("what", "found")
    table.add_row("python", platform.python_version())
    for name in LIBRARIES:
        try:
            table.add_row(name, version(name))
        except PackageNotFoundError:
            table.add_row(name, "[red]missing: run `make install`")
    table.add_row("cores", f"{os.cpu_count()} (one worker each by default)")
    folder = data_dir or os.environ.get("ATOLL_DATA") or "none: set ATOLL_DATA or --data-dir"
    table.add_row("data folder", cell(str(folder)))
    present = [entry.name for entry in catalogue(data_dir) if entry.present]
    table.add_row("data sets present", ", ".join(present))
    return table
