"""`atoll datasets export`: a data set as one file per client."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

console = Console()


def export(
    name: Annotated[str, typer.Argument(help="A data set; see `atoll datasets`.")],
    out: Annotated[Path, typer.Option(help="The folder of the files.")],
    clients: Annotated[int | None, typer.Option(help="How many clients the rows are dealt out to.")] = None,
    names: Annotated[str | None, typer.Option(help="The clients' names: north,south,west")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:0.5, classes:5, ...")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same rows.")] = 1,
    data_dir: Annotated[Path | None, typer.Option("--data-dir", help="Folder of data sets; else $ATOLL_DATA.")] = None,
) -> None:
    """Write a data set's training rows as one CSV (tables) or NPZ file (images) per client."""
    from atoll.data.export import export as write_files
    from atoll.report.terminal import printable

    called = None if names is None else [word.strip() for word in names.split(",")]
    for path, rows in write_files(name, out, called, clients, partition, seed, data_dir):
        console.print(printable(f"{path}: {rows:,} rows"), markup=False, highlight=False, soft_wrap=True)
