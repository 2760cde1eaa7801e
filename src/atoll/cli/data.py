"""`atoll data`: check data; `atoll datasets`: list, fetch and export data sets; `atoll partition`: the classes of each
client; `atoll devices`: device profiles."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from atoll.cli.console import DataDir, Json, Settings, error_console, out_console, tell, tell_json
from atoll.devices import SHIPPED, DeviceProfile, LayerWork, device_profile
from atoll.errors import ConfigError

app = typer.Typer(help="Data sets: list, fetch and export them.", invoke_without_command=True)


@app.callback()
def datasets(context: typer.Context, data_dir: DataDir = None, as_json: Json = False) -> None:
    """List the data sets, and whether their files are present."""
    if context.invoked_subcommand is not None:
        return
    from atoll.data import catalogue

    if as_json:
        tell_json([asdict(entry) for entry in catalogue(data_dir)])
        return
    table = Table("name", "kind", "rows", "classes", "present", "where from")
    for entry in catalogue(data_dir):
        present = "yes" if entry.present else "no"
        table.add_row(entry.name, entry.kind, entry.rows, str(entry.classes), present, entry.origin)
    out_console.print(table)


@app.command()
def fetch(name: Annotated[str, typer.Argument(help="An image data set.")], data_dir: DataDir = None) -> None:
    """Download an image data set from its official address (resumed after an interruption, checksum verified)."""
    from atoll.data.fetch import fetch as fetch_files
    from atoll.report.terminal import downloading

    folder = data_dir or os.environ.get("ATOLL_DATA")
    if not folder:
        raise ConfigError(
            f"{name}: no folder to download to; give one with --data-dir, or set ATOLL_DATA",
            code="no-download-folder",
        )
    with downloading(error_console) as progress:
        files = fetch_files(name, folder, progress=progress)
    tell(f"{name}: downloaded to {files[0].parent}")


@app.command()
def export(
    name: Annotated[str, typer.Argument(help="A data set; see `atoll datasets`.")],
    out: Annotated[Path, typer.Option(help="The folder of the files.")],
    clients: Annotated[int | None, typer.Option(help="The number of clients.")] = None,
    names: Annotated[str | None, typer.Option(help="The clients' names: north,south,west")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:0.5, classes:5, ...")] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same rows.")] = 1,
    data_dir: DataDir = None,
) -> None:
    """Write a data set's training rows as one CSV (tables) or NPZ file (images) per client."""
    from atoll.data.files.export import export as write_files

    called = None if names is None else [word.strip() for word in names.split(",")]
    for path, rows in write_files(name, out, called, clients, partition, seed, data_dir):
        tell(f"{path}: {rows:,} rows")


data_app = typer.Typer(help="Own data: check it before a run.", no_args_is_help=True)


@data_app.callback()
def data() -> None:
    """Own data: check it before a run."""


@data_app.command()
def check(
    target: Annotated[str, typer.Argument(help="A folder or file of own data, an experiment file, or a data set.")],
    data_dir: DataDir = None,
    settings: Settings = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report everything that is wrong with data, the settings that solve it, and what the data holds."""
    import json

    from atoll.data.files.check import check as check_data
    from atoll.report.tables import check_tables
    from atoll.run.assemble import assemble_data

    data_settings, seed = assemble_data(target, {}, settings or [])
    report = check_data(data_settings, seed, data_dir)
    if as_json:
        tell(json.dumps(report.plain(), indent=1))
    else:
        for line in report.lines():
            tell(line)
        for table in check_tables(report):
            out_console.print(table, highlight=False)
    if report.problems:
        raise typer.Exit(ConfigError.exit_code)


def partition(
    target: Annotated[str, typer.Argument(help="An experiment file (.toml), a data set or a folder of own data.")],
    clients: Annotated[int | None, typer.Option(help="How many clients.")] = None,
    rule: Annotated[str | None, typer.Option("--partition", help="iid, dirichlet:0.5, classes:5, ...")] = None,
    seed: Annotated[int | None, typer.Option()] = None,
    out: Annotated[Path, typer.Option(help="The figure (png or svg).")] = Path("partition.png"),
    data_dir: DataDir = None,
    settings: Settings = None,
    as_json: Json = False,
) -> None:
    """Show the classes that each client holds, as a table and a figure."""
    from atoll.data import load
    from atoll.data.federated import histogram
    from atoll.report.figures.partition import draw_partition
    from atoll.report.tables import partition_table
    from atoll.run.assemble import assemble_data

    options = {"data.clients": clients, "data.partition": rule, "seed": seed}
    data_settings, data_seed = assemble_data(target, options, settings or [])
    with out_console.status("reading the data"):
        federated = load(data_settings, data_seed, data_dir)
    if as_json:
        counts = {name: row.tolist() for name, row in zip(federated.names, histogram(federated), strict=True)}
        held = {name: row.tolist() for name, row in zip(federated.held_out, histogram(federated, True), strict=True)}
        tell_json({"classes": federated.schema.classes, "clients": counts, "held_out": held})
        return
    out_console.print(partition_table(federated))
    name = data_settings.name or Path(data_settings.folder or "").name
    rule_used = f", {data_settings.partition}" if data_settings.partition else ""
    draw_partition(federated, out, f"{name}{rule_used}, seed {data_seed}")
    tell(f"drawn in {out}")


devices_app = typer.Typer(help="Device profiles: list them, or measure this machine.", invoke_without_command=True)


@devices_app.callback()
def devices(
    context: typer.Context,
    file: Annotated[list[str] | None, typer.Option("--device", help="Also this profile: a file (.toml).")] = None,
    as_json: Json = False,
) -> None:
    """List the profiles with their values."""
    if context.invoked_subcommand is not None:
        return
    from atoll.report.tables import devices_table

    profiles = {name: device_profile(name) for name in [*SHIPPED, *(file or [])]}
    if as_json:
        tell_json({name: profile.model_dump(mode="json") for name, profile in profiles.items()})
    else:
        out_console.print(devices_table(profiles))


@devices_app.command()
def measure(
    out: Annotated[Path, typer.Option(help="The profile's file (.toml).")],
    model: Annotated[
        list[str] | None, typer.Option(help="Time the layers of: convnet, mobilenet, ... (repeat)")
    ] = None,
    shape: Annotated[str, typer.Option("--input", help="Of one sample: channels x height x width.")] = "3x32x32",
    classes: Annotated[int, typer.Option(help="Number of classes of the models.")] = 10,
    repeats: Annotated[int, typer.Option(min=1, help="Forward passes per layer; the median is used.")] = 15,
    watts: Annotated[float | None, typer.Option(help="Power consumption of this machine under load.")] = None,
    links: Annotated[str, typer.Option(help="The profile whose link speeds are used.")] = "phone",
) -> None:
    """Time single layers on this machine and write its profile. Links are not measured: edit the file."""
    import platform

    from atoll.devices.measure import measure_profile, profile_text
    from atoll.devices.resources import trace_of
    from atoll.spaces import canonical

    if out.suffix != ".toml":
        raise ConfigError(
            f"--out {str(out)!r}: a profile is a .toml file; end the name with .toml", code="profile-name-not-toml"
        )
    if watts is not None and not watts > 0:
        raise ConfigError(
            f"--watts {watts}: give the power of the machine, a number above 0, or leave it out",
            code="watts-not-positive",
        )
    base, sides = device_profile(links), _sides(shape)
    layers: list[LayerWork] = []
    for name in model or ["convnet"]:
        arch = {"space": "fixed", "model": name, "input": sides, "classes": classes}
        layers += trace_of(canonical(arch)).layers
    words = f"{platform.machine()}, one thread; layers of {', '.join(model or ['convnet'])} at {shape}"
    with out_console.status("timing layers") as status:

        def watch(done: int, whole: int) -> None:
            status.update(f"timing layers: {done} of {whole}")

        profile = measure_profile(layers, repeats, base, words, watts, watch)
    remark = f"Measured by `atoll devices measure`, median of {repeats}. Links from profile {links!r}: replace them."
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(profile_text(profile, remark), encoding="utf-8")
    _report(profile, out)


def _report(profile: DeviceProfile, out: Path) -> None:
    rows = len(profile.layers.root)
    text = f"{rows} layers timed, {profile.macs_per_second / 1e9:.2f} GMAC/s; written: {out}"
    tell(text)


def _sides(text: str) -> list[int]:
    parts = text.lower().split("x")
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise ConfigError(
            f"--input {text!r}: give channels x height x width, such as 3x32x32, or a number of features",
            code="bad-input-shape",
        )
    return [int(part) for part in parts]
