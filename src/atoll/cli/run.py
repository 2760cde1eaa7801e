"""`atoll run`, `resume`, `retrain`, `sweep` and `show`: runs, from their start to their results."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.console import DataDir, Settings, complain, out_console, tell
from atoll.errors import Paused

if TYPE_CHECKING:
    from atoll.config import Experiment
    from atoll.run.reader import Run

INTERRUPTED = 130  # exit code: stopped by Ctrl-C after a checkpoint

Quiet = Annotated[bool, typer.Option("--quiet", help="No progress, only the result.")]
Workers = Annotated[int | None, typer.Option(help="Worker processes; default one per core, 0: none.")]


def run(
    target: Annotated[
        str, typer.Argument(help="An experiment file (.toml), or a method: see `atoll methods`, or module:Class.")
    ],
    data: Annotated[str | None, typer.Option(help="A data set's name, or a folder with one file per client.")] = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients that share the data.")] = None,
    partition: Annotated[str | None, typer.Option(help="iid, dirichlet:0.5, classes:5, shards:2, natural, ...")] = None,
    rounds: Annotated[int | None, typer.Option(help="Communication rounds.")] = None,
    preset: Annotated[str | None, typer.Option(help="small (minutes on two cores) or paper.")] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same bits.")] = None,
    workers: Workers = None,
    engine: Annotated[str | None, typer.Option(help="How clients are reached: local, or ray for a cluster.")] = None,
    ray_address: Annotated[str | None, typer.Option(help="HOST:PORT of a cluster; without it: this machine.")] = None,
    federation: Annotated[Path | None, typer.Option(help="A federation of sites; see `atoll federation`.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default runs/METHOD-DATA-N.")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    settings: Settings = None,
) -> None:
    """Start a run from an experiment file, or from a method and data."""
    from atoll.config import resolve
    from atoll.run.assemble import assemble

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
    _begin(experiment, out, data_dir, quiet)


def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    rounds: Annotated[int | None, typer.Option(help="More rounds than planned.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    accept_changes: Annotated[
        bool, typer.Option(help="Continue although versions, threads or data have changed.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Continue a run that was stopped or killed, or extend a finished one."""
    from atoll.run import launch

    with _watched(quiet, directory) as watching:
        found = launch.resume(
            directory,
            rounds=rounds,
            workers=workers,
            data_dir=data_dir,
            accept_changes=accept_changes,
            **watching,
        )
    _shown(found)


def retrain(
    directory: Annotated[Path, typer.Argument(help="A run directory, of any method.")],
    pick: Annotated[str, typer.Option(help="Networks of the run, or hand-designed ones: high,knee,resnet18")] = "high",
    beside: Annotated[
        list[Path] | None, typer.Option(help="A run whose networks are trained too; may be repeated.")
    ] = None,
    start: Annotated[str, typer.Option("--from", help="scratch, or found: start from the run's weights.")] = "scratch",
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
    """Train networks of a run side by side, from scratch or from their weights, to validate what a search found."""
    from atoll.config import resolve
    from atoll.run.reader import load
    from atoll.run.retrain import assemble_retraining

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
    others = [load(other) for other in beside or []]
    raw = assemble_retraining(load(directory), pick.split(","), options, settings or [], start, others)
    _begin(resolve(raw), out, data_dir, quiet)


def sweep(
    target: Annotated[Path, typer.Argument(help="An experiment file (.toml).")],
    seeds: Annotated[str, typer.Option(help="How many (20), a range (1-20) or a list (1,2,5).")] = "20",
    out: Annotated[Path | None, typer.Option(help="The folder of the runs; default runs/FILE.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    settings: Settings = None,
) -> None:
    """Run an experiment with many seeds; a repeated call continues where it stopped. See `atoll compare`."""
    from atoll.config import resolve
    from atoll.run.assemble import assemble
    from atoll.run.sweep import seeds_from
    from atoll.run.sweep import sweep as run_all

    experiment = resolve(assemble(str(target), {"engine.workers": workers}, settings or []))
    folder = out if out is not None else Path("runs") / target.stem
    numbers = seeds_from(seeds, experiment.seed)
    with _watched(quiet, folder, again=f"atoll sweep {target}") as watching:
        for found in run_all(experiment, numbers, folder, data_dir=data_dir, watch=lambda _: watching):
            tell(f"finished: {found.path}")
    tell(f"compare them with: atoll compare {folder} ...")


def show(directory: Annotated[Path, typer.Argument(help="A run directory.")]) -> None:
    """Show what a run found and what it cost."""
    from atoll.run.reader import load

    _shown(load(directory))


def _begin(experiment: Experiment, out: Path | None, data_dir: Path | None, quiet: bool) -> None:
    """Start a run with progress display, and show its result."""
    from atoll.run import launch
    from atoll.run.assemble import free_run_directory

    folder = out if out is not None else free_run_directory(experiment)
    with _watched(quiet, folder) as watching:
        found = launch.start(experiment, folder, data_dir=data_dir, **watching)
    _shown(found, what_next=True)


@contextmanager
def _watched(quiet: bool, folder: Path, again: str | None = None) -> Iterator[dict[str, Any]]:
    """Progress and signals: the first Ctrl-C stops after the round and a checkpoint, the second immediately."""
    from atoll.report.terminal import progress

    stopping: list[int] = []

    def on_signal(number: int, _frame: object) -> None:
        if stopping:
            raise KeyboardInterrupt
        stopping.append(number)
        # Directly to the error stream: the signal may arrive while rich is printing or being imported.
        start = b"\n" if os.isatty(2) else b""  # below the progress bar
        os.write(2, start + b"stopping after this round (once more: at once)\n")

    watcher = progress(out_console, quiet)
    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield {"watcher": watcher, "stop": lambda: bool(stopping)}
    except Paused as pause:
        watcher.close()
        hint = f"; continue with: {again or f'atoll resume {shlex.quote(str(folder))}'}" if pause.resumable else ""
        complain(f"{pause}{hint} [{pause.code}]")
        raise typer.Exit(INTERRUPTED if stopping else pause.exit_code) from None
    finally:
        watcher.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _shown(found: Run, what_next: bool = False) -> None:
    from atoll.report.terminal import show_next, show_run

    show_run(out_console, found)
    if what_next:
        show_next(out_console, found)
