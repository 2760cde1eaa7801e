"""`atoll datasets`: what data there is, fetching and dealing it out; `atoll partition`: who holds which classes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from atoll.commands.console import DataDir, Settings, error_console, out_console, tell
from atoll.errors import ConfigError

app = typer.Typer(help="Data sets: what there is, and fetching the image sets.", invoke_without_command=True)


@app.callback()
def datasets(context: typer.Context, data_dir: DataDir = None) -> None:
    """The data sets there are, and which are present."""
    if context.invoked_subcommand is not None:
        return
    from atoll.data import catalogue

    table = Table("name", "kind", "rows", "classes", "present", "where from")
    for entry in catalogue(data_dir):
        present = "yes" if entry.present else "no"
        table.add_row(entry.name, entry.kind, entry.rows, str(entry.classes), present, entry.origin)
    out_console.print(table)


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="An image data set.")], data_dir: DataDir = None) -> None:
    """Download an image data set from its official address (resumed when cut, checksum verified)."""
    from atoll.data.fetch import fetch as fetch_files
    from atoll.report.download import downloading

    folder = data_dir or os.environ.get("ATOLL_DATA")
    if not folder:
        raise ConfigError(
            f"{name}: where to? name a folder with --data-dir, or in the environment's ATOLL_DATA",
            code="no-download-folder",
        )
    with downloading(error_console) as progress:
        files = fetch_files(name, folder, progress=progress)
    tell(f"{name}: in {files[0].parent}")


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A data set; see `atoll datasets`.")],
    out: Annotated[Path, typer.Option(help="The folder of the files.")],
    clients: Annotated[int | None, typer.Option(help="How many clients the rows are dealt out to.")] = None,
    names: Annotated[str | None, typer.Option(help="The clients' names: north,south,west")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:0.5, classes:5, ...")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same rows.")] = 1,
    data_dir: DataDir = None,
) -> None:
    """Write a data set's training rows as one CSV (tables) or NPZ file (images) per client."""
    from atoll.data.export import export as write_files

    called = None if names is None else [word.strip() for word in names.split(",")]
    for path, rows in write_files(name, out, called, clients, partition, seed, data_dir):
        tell(f"{path}: {rows:,} rows")


def partition(
    target: Annotated[str, typer.Argument(help="An experiment file (.toml), a data set or a folder of own data.")],
    clients: Annotated[int | None, typer.Option(help="How many clients.")] = None,
    rule: Annotated[str | None, typer.Option("--partition", help="iid, dirichlet:0.5, classes:5, ...")] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    out: Annotated[Path, typer.Option(help="The picture (png or svg).")] = Path("partition.png"),
    data_dir: DataDir = None,
    settings: Settings = None,
) -> None:
    """Who holds which classes: a table, and a picture."""
    from atoll.assemble import assemble_data
    from atoll.data import load
    from atoll.report.partition import draw_partition
    from atoll.report.tables import partition_table

    options = {"data.clients": clients, "data.partition": rule, "seed": seed}
    data_settings, data_seed = assemble_data(target, options, settings or [])
    federated = load(data_settings, data_seed, data_dir)
    out_console.print(partition_table(federated))
    draw_partition(federated, out)
    tell(f"drawn in {out}")
