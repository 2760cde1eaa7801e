"""`atoll run`, `resume`, `retrain`, `sweep`, `export` and `predict`: runs, from their start to the use of networks."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from atoll.cli.console import DataDir, Settings, known, out_console, tell
from atoll.cli.pages import Live, live
from atoll.cli.watching import Quiet, Track, watched
from atoll.errors import ConfigError, DataError, nearest

if TYPE_CHECKING:
    from atoll.config import Experiment
    from atoll.run.reader import Run

Workers = Annotated[int | None, typer.Option(help="Worker processes; default one per core, 0: none.")]


def run(
    target: Annotated[
        str,
        typer.Argument(
            help="An experiment file (.toml), or a method: see `atoll methods`, or module:Class.",
            autocompletion=known("methods"),
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="A data set's name, or a folder with one file per client.", autocompletion=known("datasets")),
    ] = None,
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
    faults: Annotated[Path | None, typer.Option(help="Faults and attacks on purpose, a .toml file of rules.")] = None,
    out: Annotated[Path | None, typer.Option(help="The run directory; default runs/METHOD-DATA-N.")] = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    dashboard: Live = False,
    track: Track = None,
    estimate: Annotated[
        bool,
        typer.Option("--estimate", help="Only say what the run would send and spend of [privacy]; train nothing."),
    ] = False,
    bandwidth: Annotated[
        float | None,
        typer.Option(help="With --estimate: Mbit/s of each client's connection, for a duration.", min=0.001),
    ] = None,
    settings: Settings = None,
) -> None:
    """Start a run from an experiment file, or from a method and data."""
    from atoll.config import read_faults, resolve
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
        "faults": None if faults is None else read_faults(faults),
    }
    experiment = resolve(assemble(target, options, settings or []))
    if estimate:
        _estimate(experiment, bandwidth, data_dir)
        return
    if bandwidth is not None:
        raise ConfigError(
            f"--bandwidth {bandwidth:g}: it serves --estimate only; add that, or leave it out",
            code="inapplicable-setting",
        )
    _begin(experiment, out, data_dir, quiet, dashboard, track)


def _estimate(experiment: Experiment, bandwidth: float | None, data_dir: Path | None) -> None:
    from atoll.extras import require
    from atoll.report.terminal import estimated
    from atoll.run import launch

    sites = experiment.engine.federation is not None
    if sites:
        require("flower")
        from atoll.deploy.flower.engine import from_last_run

        found, lines = launch.estimate(experiment, data_dir=data_dir, open_engine=from_last_run)
    else:
        found, lines = launch.estimate(experiment, data_dir=data_dir)
    for line in (*lines, *estimated(found, bandwidth, real=sites)):
        tell(line)


def resume(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    rounds: Annotated[int | None, typer.Option(help="More rounds than planned.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    accept_changes: Annotated[
        bool, typer.Option(help="Continue although versions, threads or data have changed.")
    ] = False,
    quiet: Quiet = False,
    dashboard: Live = False,
    track: Track = None,
) -> None:
    """Continue a run that was stopped or killed, or extend a finished one."""
    from atoll.run import launch
    from atoll.run.reader import load

    found = load(directory)
    if launch.is_finished(found, rounds):
        tell(f"{directory}: finished already, nothing to do; --rounds N continues it")
    else:
        with live(directory, dashboard), watched(quiet, directory, track=track) as watching:
            found = launch.resume(
                directory,
                rounds=rounds,
                workers=workers,
                data_dir=data_dir,
                accept_changes=accept_changes,
                **watching.options(directory),
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
    private: Annotated[
        bool, typer.Option("--private/--not-private", help="With the [privacy] of the run, if it has one, or without.")
    ] = True,
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
    raw = assemble_retraining(load(directory), pick.split(","), options, settings or [], start, others, private)
    _begin(resolve(raw), out, data_dir, quiet)


def sweep(
    target: Annotated[Path, typer.Argument(help="An experiment file (.toml).")],
    seeds: Annotated[str, typer.Option(help="How many (20), a range (1-20) or a list (1,2,5).")] = "20",
    methods: Annotated[
        str | None,
        typer.Option(
            help="Several methods, as in fedavg,realtime, on the same data; the file's table 'stop' is the budget."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The folder of the runs; default runs/FILE.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    dashboard: Live = False,
    track: Track = None,
    settings: Settings = None,
) -> None:
    """Run an experiment with many seeds; a repeated call continues where it stopped. See `atoll compare`."""
    from atoll.report.results import show_problems
    from atoll.run.sweep import seeds_from, sweep_methods
    from atoll.run.sweep import sweep as run_all

    options = {"engine.workers": workers}
    folder = out if out is not None else Path("runs") / target.stem
    again = f"atoll sweep {shlex.quote(str(target))} --seeds {seeds}" + (f" --methods {methods}" if methods else "")
    experiments = _experiments(target, methods, options, settings or [])
    numbers = seeds_from(seeds, next(iter(experiments.values())).seed)
    command = again + "".join(f" --set {shlex.quote(one)}" for one in settings or [])
    with live(folder, dashboard), watched(quiet, folder, again=again, track=track) as watching:
        if methods is None:
            (only,) = experiments.values()
            runs = run_all(only, numbers, folder, data_dir=data_dir, watch=watching.options)
        else:
            if not any(value for _, value in next(iter(experiments.values())).stop):
                tell("note: no budget in [stop]: each method runs its own number of rounds, at its own cost")
            runs = sweep_methods(
                experiments, numbers, folder, data_dir=data_dir, watch=watching.options, command=command
            )
        for found in runs:
            tell(f"finished: {found.path}")
            show_problems(out_console, found)
    page = f" -o {folder.name}.html" if methods else " ..."
    tell(f"compare them with: atoll compare {shlex.quote(str(folder))}{page}")


def _experiments(
    target: Path, methods: str | None, options: dict[str, Any], settings: list[str]
) -> dict[str, Experiment]:
    """The experiment of the file, or one for each method."""
    from atoll.config import read_file, resolve, settings_table
    from atoll.run.assemble import assemble, with_options
    from atoll.run.sweep import methods_from, of_method

    if methods is None:
        experiment = resolve(assemble(str(target), options, settings))
        return {settings_table(experiment.method): experiment}
    raw = read_file(target)
    found = {}
    for name in methods_from(methods):
        own = with_options({**raw, "method": name}, options, settings)
        found[settings_table(name)] = resolve(of_method(own, name))
    return found


SET_ASIDE = "no client has validation rows: a fifth of the training rows was set aside to choose the learning rate"
Rates = Annotated[str, typer.Option(help="Learning rates to choose from, on validation rows; one: no choice.")]


def baselines(
    directory: Annotated[
        Path, typer.Argument(help="A finished search of realtime, offline, moefl or nevofed, or the folder of a sweep.")
    ],
    seeds: Annotated[
        str | None, typer.Option(help="How many (3), a range (1-3) or a list (1,2,5). Default: those of the searches.")
    ] = None,
    rivals: Annotated[str | None, typer.Option(help="Only these: standard,like-high,random,... Default: all.")] = None,
    rates: Rates = "0.03,0.1,0.3",
    out: Annotated[Path | None, typer.Option(help="The folder of the rivals' runs; default RUN-baselines.")] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
) -> None:
    """Run fair rivals of a search at its client cost: hand-made networks, random search. See `atoll compare`."""
    from atoll.run.baselines.running import run_rivals
    from atoll.run.baselines.tuning import about_own_rate, rates_from
    from atoll.run.carried import carried_privacy, each_spends
    from atoll.run.reader import load
    from atoll.run.sweep import runs_in, seeds_from

    there = [load(directory)] if (directory / "config.toml").is_file() else runs_in(directory)
    searches = {int(run.manifest["seed"]): run for run in there}
    if seeds is not None:
        first = min(searches)
        searches = {seed: searches.get(seed, searches[first]) for seed in seeds_from(seeds, first)}
    folder = out if out is not None else directory.with_name(f"{directory.name}-baselines")
    wanted = None if rivals is None else rivals.split(",")
    for line in each_spends(
        carried_privacy(there).get("privacy", {}).get("epsilon"), "the runs, also to choose a rate,"
    ):
        tell(line)
    with watched(quiet, folder, again=f"atoll baselines {shlex.quote(str(directory))}") as watching:
        for found in run_rivals(
            searches,
            folder,
            rates=rates_from(rates),
            wanted=wanted,
            workers=workers,
            data_dir=data_dir,
            watch=watching.options,
        ):
            if found.problem:
                where = ", ".join(map(str, found.without))
                tell(f"{found.name}: left out for {where}: {found.problem}")
                continue
            tuned, count = found.tuned, len(found.runs)
            rate = "" if tuned is None else f", learning rate {tuned.rate:g} of {rates} ({tuned.macs / 1e9:,.0f} GMAC)"
            cost = f", {found.cost_share(searches):.2f} of the search's client MACs"
            tell(f"{found.name}: {count} run{'s' if count > 1 else ''} in {folder / found.name}{cost}{rate}")
            if tuned is not None and tuned.set_aside:
                tell(f"{found.name}: {SET_ASIDE}")
    own = about_own_rate(next(iter(searches.values())))
    if own is not None:
        tell(own)
    tell(f"compare them with: atoll compare {directory} {folder}")


def tune(
    target: Annotated[Path, typer.Argument(help="An experiment file (.toml), or a run: its settings.")],
    rates: Rates = "0.03,0.1,0.3",
    out: Annotated[
        Path | None, typer.Option(help="The folder of the runs; default runs/FILE-tuning, or RUN-tuning.")
    ] = None,
    workers: Workers = None,
    data_dir: DataDir = None,
    quiet: Quiet = False,
    settings: Settings = None,
) -> None:
    """Choose a learning rate by validation error, with a third of the rounds."""
    from atoll.config import resolve
    from atoll.run.assemble import assemble
    from atoll.run.baselines.rivals import Rival
    from atoll.run.baselines.tuning import rates_from, tuning_folder
    from atoll.run.baselines.tuning import tune as choose
    from atoll.run.carried import each_spends

    run = target if (target / "config.toml").is_file() else None
    raw = assemble(str(target if run is None else run / "config.toml"), {"engine.workers": workers}, settings or [])
    usual = Path("runs") / f"{target.stem}-tuning" if run is None else tuning_folder(run)
    folder = out if out is not None else usual
    private = resolve(raw).privacy
    for line in each_spends(None if private is None else private.epsilon, f"the {len(rates_from(rates))} runs"):
        tell(line)
    with watched(quiet, folder, again=f"atoll tune {target}") as watching:
        found = choose(Rival(target.stem, raw), rates_from(rates), folder, data_dir, watching.options)
    for rate, error in found.errors.items():
        tell(f"learning rate {rate:g}: validation error {error:.4f}{'  <- lowest' if rate == found.rate else ''}")
    if found.set_aside:
        tell(SET_ASIDE)


def export(
    directory: Annotated[Path, typer.Argument(help="A run directory.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file: .onnx, .pt2, .safetensors, or .py (nevofed).")],
    pick: Annotated[str | None, typer.Option(help="Which network; default: the one the method recommends.")] = None,
    statistics: Annotated[
        Path | None,
        typer.Option(help="With data.scale = 'client': rows of the client (.csv), or its preparation.json."),
    ] = None,
) -> None:
    """Write a found network as a file that answers raw rows without Atoll, with a model card."""
    from atoll.report.terminal import amount
    from atoll.run.reader import load

    found = load(directory)
    with out_console.status("exporting"):
        done = found.export(out, pick or found.recommended, statistics=statistics)
    for path in done.files:
        tell(f"written: {path} ({amount(path.stat().st_size)})")
    tell(f"compared with the network on {done.rows} made-up rows: largest difference {done.difference:.1g}")


def predict(
    network: Annotated[Path, typer.Argument(help="An exported network (.onnx), or a run directory.")],
    rows: Annotated[Path, typer.Argument(help="Raw rows: CSV, Parquet, .npy, an image or a folder of images.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The answers (.csv); without it they are shown.")
    ] = None,
    pick: Annotated[str | None, typer.Option(help="With a run directory: which network.")] = None,
    statistics: Annotated[
        Path | None, typer.Option(help="With a run directory and data.scale = 'client': rows of the client.")
    ] = None,
    unknown_category: Annotated[
        str, typer.Option(help="refuse, missing (as a missing value), or zeros (one-hot categories).")
    ] = "refuse",
    extra_columns: Annotated[str, typer.Option(help="refuse or ignore.")] = "refuse",
) -> None:
    """Answer raw rows with a network: the class of each and its probabilities. An exported one needs no torch."""
    from atoll.preparation.answers import ExportedNetwork
    from atoll.preparation.tables import CHOICES, RowError

    options = {"unknown_category": unknown_category, "extra_columns": extra_columns}
    for name, value in options.items():
        if value not in CHOICES[name]:
            raise ConfigError(
                f"--{name.replace('_', '-')} {value}: unknown; {nearest(value, CHOICES[name])}", code="invalid-setting"
            )
    try:
        if network.is_dir():
            from atoll.run.reader import load

            found = load(network)
            answers = found.predict(rows, pick or found.recommended, statistics=statistics, **options)
        else:
            answers = ExportedNetwork(network).predict(rows, **options)
    except RowError as problem:
        raise DataError(str(problem), code=problem.code) from None
    if out is not None:
        answers.write(out)
        tell(f"{len(answers.labels)} rows answered in {out}")
        return
    for place, label, values in zip(answers.places, answers.labels, answers.values.tolist(), strict=True):
        tell(f"{place}: {label} ({', '.join(f'{value:.4g}' for value in values)})")


def _begin(
    experiment: Experiment,
    out: Path | None,
    data_dir: Path | None,
    quiet: bool,
    dashboard: bool = False,
    track: str | None = None,
) -> None:
    """Start a run with progress display, and show its result."""
    from atoll.run import launch
    from atoll.run.assemble import free_run_directory

    folder = out if out is not None else free_run_directory(experiment)
    with live(folder, dashboard):
        with watched(quiet, folder, track=track) as watching:
            found = launch.start(experiment, folder, data_dir=data_dir, **watching.options(folder))
        _shown(found, what_next=True)


def _shown(found: Run, what_next: bool = False) -> None:
    from atoll.report.results import show_next, show_run

    show_run(out_console, found)
    if what_next:
        show_next(out_console, found)
