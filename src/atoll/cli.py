"""The command line. Commands only: what they do is elsewhere.

Exit codes: 0 done; 1 a fault of Atoll; 2 something typed or supplied is wrong; 3 paused, can be resumed; 4 the run
directory is damaged; 130 stopped by Ctrl-C after a checkpoint.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click
import typer
from rich.console import Console
from rich.table import Table

from atoll.commands import datasets_export, federation, site
from atoll.commands.cost import cost
from atoll.commands.devices import devices_app
from atoll.errors import AtollError, ConfigError, Paused

if TYPE_CHECKING:
    from atoll.reading import Run

INTERRUPTED = 130

app = typer.Typer(
    help="Federated neural architecture search: find the right network for data that stays where it is.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
datasets_app = typer.Typer(help="Data sets: what there is, and fetching the image sets.", invoke_without_command=True)
app.add_typer(datasets_app, name="datasets")
app.add_typer(devices_app, name="devices")
app.command()(cost)
datasets_app.command()(datasets_export.export)
app.add_typer(federation.app, name="federation")
app.add_typer(site.app, name="site")

out_console = Console()
error_console = Console(stderr=True)

DataDir = Annotated[Path | None, typer.Option("--data-dir", help="Folder of data sets; else $ATOLL_DATA.")]
Settings = Annotated[list[str] | None, typer.Option("--set", help="Any setting: a.b=value; may be repeated.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes; default one per core, 0: none.")]


@app.command()
def run(
    target: Annotated[str, typer.Argument(help="An experiment file (.toml) or a method; see `atoll methods`.")],
    data: Annotated[str | None, typer.Option(help="A data set's name, or a folder with one file per client.")] = None,
    clients: Annotated[int | None, typer.Option(help="How many clients the data is dealt out to.")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:0.5, classes:5, shards:2, natural, ...")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None,
    preset: Annotated[str | None, typer.Option(help="small (minutes on two cores) or paper.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same bits.")] = None,
    workers: Workers = None,
    engine: Annotated[str | None, typer.Option(help="How clients are reached: local, or ray for a cluster.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="HOST:PORT of a cluster; without it: this machine.")] = None,
    federation: Annotated[Path | None, typer.Option(help="A federation of sites; see `atoll federation`.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, or cuda for those who have one.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default runs/METHOD-DATA-N.")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    settings: Settings = None,
) -> None:
    """Start a run from an experiment file, or from a method and data."""
    from atoll import launch
    from atoll.assemble import assemble, free_run_directory
    from atoll.config import resolve

    options = {
        "data": data,
        "data.clients": clients,
        "data.partition": partition,
        "rounds": rounds,
        "preset": preset,
        "seed": seed,
        "engine.workers": workers,
        "engine.name": engine,
        "engine.ray_address": ray_address,
        "engine.federation": None if federation is None else str(federation.resolve()),
        "engine.device": device,
    }
    experiment = resolve(assemble(target, options, settings or []))
    folder = out if out is not None else free_run_directory(experiment)
    with _watched(quiet, folder) as watching:
        found = launch.start(experiment, folder, data_dir=data_dir, **watching)
    _show(found, what_next=True)


@app.command()
def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    rounds: Annotated[int | None, typer.Option(help="Go further than was planned.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    accept_changes: Annotated[bool, typer.Option(help="Go on though versions, threads or data have changed.")] = False,
    quiet: Quiet = False,
) -> None:
    """Go on with a run that was stopped, killed or finished."""
    from atoll import launch

    with _watched(quiet, directory) as watching:
        found = launch.resume(
            directory,
            rounds=rounds,
            workers=workers,
            data_dir=data_dir,
            accept_changes=accept_changes,
            **watching,
        )
    _show(found)


@app.command()
def retrain(
    directory: Annotated[Path, typer.Argument(help="A run directory, of any method.")],
    pick: Annotated[str, typer.Option(help="Networks of the run, by pick or name: high1,knee1,standard")] = "high",
    start: Annotated[str, typer.Option("--from", help="scratch, or found: go on from the run's weights.")] = "scratch",
    groups: Annotated[int | None, typer.Option(help="Networks in parallel, each on its own group of clients.")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None,
    partition: Annotated[str | None, typer.Option(help="Another partition than the run's: iid, shards:2, ...")] = None,
    clients: Annotated[int | None, typer.Option(help="Another number of clients.")] = None,
    data: Annotated[str | None, typer.Option(help="Other data than the run's: a data set, or a folder.")] = None,
    central: Annotated[bool, typer.Option("--central", help="On all data in one place, instead of federated.")] = False,
    cells: Annotated[int | None, typer.Option(help="Another depth, for networks of found cells.")] = None,
    channels: Annotated[int | None, typer.Option(help="Another width, for networks of found cells.")] = None,
    seed: Annotated[int | None, typer.Option(help="Default: the run's.")] = None,
    workers: Workers = None,
    out: Annotated[Path | None, typer.Option(help="The new run directory; default runs/retrain-DATA-N.")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    settings: Settings = None,
) -> None:
    """Train chosen networks of a run, from scratch or further, side by side: the validation of what a search found."""
    from atoll import launch
    from atoll.assemble import free_run_directory
    from atoll.config import resolve
    from atoll.reading import load
    from atoll.retraining import assemble_retraining

    options = {
        "data": data,
        "data.clients": clients,
        "data.partition": partition,
        "central": central,
        "cells": cells,
        "channels": channels,
        "rounds": rounds,
        "retrain.groups": groups,
        "seed": seed,
        "engine.workers": workers,
    }
    experiment = resolve(assemble_retraining(load(directory), pick.split(","), options, settings or [], start))
    folder = out if out is not None else free_run_directory(experiment)
    with _watched(quiet, folder) as watching:
        found = launch.start(experiment, folder, data_dir=data_dir, **watching)
    _show(found, what_next=True)


@app.command()
def sweep(
    target: Annotated[Path, typer.Argument(help="An experiment file (.toml).")],
    seeds: Annotated[str, typer.Option(help="How many (20), a range (1-20) or a list (1,2,5).")] = "20",
    out: Annotated[Path | None, typer.Option(help="The folder of the runs; default runs/FILE.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    settings: Settings = None,
) -> None:
    """Run an experiment with many seeds; called again, it goes on where it stopped. See `atoll compare`."""
    from atoll.assemble import assemble
    from atoll.config import resolve
    from atoll.sweeping import seeds_from
    from atoll.sweeping import sweep as run_all

    experiment = resolve(assemble(str(target), {"engine.workers": workers}, settings or []))
    folder = out if out is not None else Path("runs") / target.stem
    numbers = seeds_from(seeds, experiment.seed)
    with _watched(quiet, folder, again=f"atoll sweep {target}") as watching:
        for found in run_all(experiment, numbers, folder, data_dir=data_dir, watch=lambda _: watching):
            out_console.print(f"finished: {found.path}", markup=False, highlight=False, soft_wrap=True)
    out_console.print(f"compare them with: atoll compare {folder} ...", markup=False, highlight=False)


@app.command()
def show(directory: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """What a run found and what it cost."""
    from atoll.reading import load

    _show(load(directory))


@app.command()
def compare(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them (see `atoll sweep`).")],
    out: Annotated[Path | None, typer.Option(help="Also a picture with box plots (png or svg).")] = None,
) -> None:
    """Runs side by side: mean and deviation over seeds, client by client, Mann-Whitney U."""
    from atoll.report.boxes import draw_boxes
    from atoll.report.comparison import gather, markdown

    groups = gather(directories)
    out_console.print(markdown(groups), markup=False, highlight=False, soft_wrap=True, end="")
    if out is not None:
        draw_boxes(groups, out)
        out_console.print(f"drawn in {out}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def explain(
    directory: Annotated[Path, typer.Argument(help="A run directory of a method that evolves networks.")],
    pick: Annotated[str, typer.Option(help="Which network: high (the global one), personal-CLIENT, ...")] = "high",
    out: Annotated[Path | None, typer.Option(help="The folder of the files; default RUN/explained-PICK.")] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Also network.onnx; needs the extra `export`.")] = False,
) -> None:
    """Draw an evolved network, write it as formulas, list its features, and export it as a plain NumPy file."""
    from atoll.reading import load
    from atoll.report.explain import explain as write_files

    folder = out if out is not None else directory / f"explained-{pick}"
    for path in write_files(load(directory), pick, folder, onnx):
        out_console.print(f"written: {path}", markup=False, highlight=False, soft_wrap=True)
    out_console.print(
        (folder / "formula.txt").read_text(encoding="utf-8"), markup=False, highlight=False, soft_wrap=True, end=""
    )


@app.command()
def figures(
    directories: Annotated[list[Path], typer.Argument(help="Run directories, drawn together.")],
    beside: Annotated[list[Path] | None, typer.Option(help="A run to compare with; may be repeated.")] = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the pictures; default figures/ in the first run.")] = None,
    kind: Annotated[str, typer.Option("--format", help="png or svg.")] = "png",
) -> None:
    """Draw fronts, accuracy and cost per round, hypervolume and networks of runs, finished or not."""
    from atoll.report.figures import draw_figures

    for path in draw_figures(directories, beside or [], out, kind):
        out_console.print(f"drawn in {path}", markup=False, highlight=False, soft_wrap=True)


@app.command()
def methods() -> None:
    """The methods there are."""
    from atoll.methods import find_method, method_names

    table = Table("method", "what it does")
    for name in method_names():
        table.add_row(name, find_method(name).summary)
    out_console.print(table)


@datasets_app.callback()
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


@datasets_app.command()
def fetch(name: Annotated[str, typer.Argument(help="An image data set.")], data_dir: DataDir = None) -> None:
    """Download an image data set from its official address (resumed when cut, checksum verified)."""
    from atoll.data.fetch import fetch as fetch_files
    from atoll.report.download import downloading

    folder = data_dir or os.environ.get("ATOLL_DATA")
    if not folder:
        raise ConfigError(f"{name}: where to? name a folder with --data-dir, or in the environment's ATOLL_DATA")
    with downloading(error_console) as progress:
        files = fetch_files(name, folder, progress=progress)
    out_console.print(f"{name}: in {files[0].parent}", markup=False, highlight=False, soft_wrap=True)


@app.command()
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
    out_console.print(f"drawn in {out}", markup=False, soft_wrap=True)


@app.command()
def doctor(
    data_dir: DataDir = None,
    federation_dir: federation.Examined = None,
    data: Annotated[Path | None, typer.Option(help="With a site's bundle: look at this data, too.")] = None,
) -> None:
    """Versions, cores, and which data is found: the first thing to send with a question."""
    from atoll.report.tables import health_table

    if federation_dir is not None:
        raise typer.Exit(federation.examine(federation_dir, data))
    out_console.print(health_table(data_dir))


def main() -> None:
    """The program `atoll`: a user's mistake is one line on the error stream, never a traceback."""
    from atoll.learning.determinism import prepare_environment

    prepare_environment()
    try:
        sys.exit(app(standalone_mode=False))  # a command that ends early gives its exit code, the others None
    except click.exceptions.NoArgsIsHelpError:
        sys.exit(2)  # typer has shown the help
    except click.ClickException as problem:
        _say(problem.format_message())
        sys.exit(2)
    except (KeyboardInterrupt, click.exceptions.Abort):
        _say("stopped at once; the last checkpoint stands")
        sys.exit(INTERRUPTED)
    except AtollError as problem:
        _say(str(problem))
        sys.exit(problem.exit_code)
    except OSError as problem:
        _say(f"{problem.filename or 'file system'}: {problem.strerror or problem}; make room or choose another folder")
        sys.exit(ConfigError.exit_code)


@contextmanager
def _watched(quiet: bool, folder: Path, again: str | None = None) -> Iterator[dict[str, Any]]:
    """Progress, and Ctrl-C: the first one stops after the round and a checkpoint, the second at once."""
    from atoll.report.terminal import progress

    stopping: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        if stopping:
            raise KeyboardInterrupt
        stopping.append(number)
        # Straight to the error stream: the signal may have come in the middle of printing, or of importing rich.
        start = b"\n" if os.isatty(2) else b""  # not into the progress bar
        os.write(2, start + b"stopping after this round (once more: at once)\n")

    watcher = progress(out_console, quiet)
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield {"watcher": watcher, "stop": lambda: bool(stopping)}
    except Paused as pause:
        watcher.close()
        _say(f"{pause}; go on with: {again or f'atoll resume {shlex.quote(str(folder))}'}")
        raise typer.Exit(INTERRUPTED if stopping else pause.exit_code) from None
    finally:
        watcher.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(found: Run, what_next: bool = False) -> None:
    from atoll.report.terminal import show_next, show_run

    show_run(out_console, found)
    if what_next:
        show_next(out_console, found)


def _say(text: str) -> None:
    from atoll.report.terminal import printable

    line = printable(" ".join(text.split()))
    error_console.print(f"atoll: {line}", style="red", markup=False, highlight=False, soft_wrap=True)
