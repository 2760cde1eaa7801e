"""`atoll report` and `atoll dashboard`: runs as pages, in a file or live in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from atoll.cli.console import out_console, tell


def report(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, finished or not.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file (.html).")] = Path("report.html"),
) -> None:
    """Write one HTML file about runs: what was found, how, at which cost. It needs nothing else to be read."""
    from atoll.report.terminal import amount

    with out_console.status("writing the report"):
        from atoll.report.html.run_report import write_report

        path = write_report(directories, out)
    tell(f"written: {path} ({amount(path.stat().st_size)})")


def dashboard(
    root: Annotated[Path, typer.Argument(help="A folder of runs, at any depth, or one run directory.")] = Path("runs"),
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="Default 8470; 0: any that is free.")] = None,
    browser: Annotated[bool, typer.Option(help="Open it in the browser.")] = True,
) -> None:
    """Watch runs live in a browser on this machine, until Ctrl-C. Read-only; the address holds a secret."""
    from atoll.extras import require

    require("dashboard")
    from atoll.cli.federation import foreground, state_of
    from atoll.dashboard.monitor import run_folders
    from atoll.dashboard.server import PORT, DashboardServer
    from atoll.errors import RunDirectoryError

    if next(run_folders(root), None) is None:
        reason = "no runs in it" if root.is_dir() else "no such folder"
        raise RunDirectoryError(
            f"{root}: {reason}; `atoll run` makes one, see `atoll run --help`", code="no-runs-found"
        )
    server = DashboardServer(root, PORT if port is None else port, state_of)
    tell(f"dashboard: {server.address}")
    tell("it shows the runs in this folder to anyone on this machine who knows this address; Ctrl-C ends it")
    if browser:
        open_browser(server.address)
    with foreground() as stop:
        server.serve(stop)


Live = Annotated[bool, typer.Option("--dashboard", help="Show the run live in the browser.")]


@contextmanager
def live(folder: Path, wanted: bool) -> Iterator[None]:
    """A dashboard of the folder's neighbours, opened at this run, while the block runs; in a terminal until Ctrl-C."""
    if not wanted:
        yield
        return
    from atoll.extras import require

    require("dashboard")
    from atoll.cli.federation import foreground, state_of
    from atoll.dashboard.server import PORT, DashboardServer
    from atoll.errors import ConfigError

    root = folder.absolute().parent
    try:
        server = DashboardServer(root, PORT, state_of, [folder])
    except ConfigError:  # another dashboard has the usual port
        server = DashboardServer(root, 0, state_of, [folder])
    with server.in_background():
        address = server.address_of(folder)
        tell(f"dashboard: {address}")
        open_browser(address)
        yield
        if out_console.is_terminal:
            tell(f"the dashboard is still there: {address}; Ctrl-C ends it")
            with foreground() as stop:
                while not stop():
                    time.sleep(0.2)


def open_browser(address: str) -> None:
    """Show a page where there is a browser with a window; without one the address has been printed."""
    import os
    import webbrowser

    has_window = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY") or os.environ.get("BROWSER")
    if has_window and not webbrowser.open(address):
        tell("no browser could be opened; copy the address")
