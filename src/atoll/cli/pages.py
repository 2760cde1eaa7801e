"""`atoll report` and `atoll dashboard`: runs as pages, in a file or live in a browser."""

from __future__ import annotations

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
