"""`atoll cost`: what runs cost their clients, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from atoll.commands.console import out_console, tell


def cost(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, finished or not.")],
    device: Annotated[str | None, typer.Option(help="Also seconds and joules: phone, board or a file (.toml).")] = None,
    against: Annotated[Path | None, typer.Option(help="The run to compare with; default the first one.")] = None,
    search_only: Annotated[
        bool, typer.Option("--search-only", help="Without training before and after the search, and final measuring.")
    ] = False,
    iterations: Annotated[int | None, typer.Option(min=1, help="Only the first so many of the search.")] = None,
    out: Annotated[Path | None, typer.Option(help="Also a picture with bars (png or svg).")] = None,
) -> None:
    """What runs cost their clients: MACs, bytes, seconds and joules of all clients and of one, from the ledgers."""
    from atoll.devices import device_profile
    from atoll.report.cost import bill, draw_cost
    from atoll.report.figures import named_runs
    from atoll.report.tables import cost_table

    profile = device_profile(device) if device is not None else None
    folders = [*directories]
    if against is not None and against.absolute() not in {folder.absolute() for folder in folders}:
        folders.append(against)
    bills = [bill(name, run, profile, search_only, iterations) for name, run in named_runs(folders).items()]
    reference = bills[0]
    if against is not None:
        reference = bills[[folder.absolute() for folder in folders].index(against.absolute())]
    out_console.print(cost_table(bills, reference, device))
    if out is not None:
        path = draw_cost(bills, reference, out)
        tell(f"drawn in {path}")
