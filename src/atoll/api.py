"""The Python face: the same runs as on the command line, with data from anywhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atoll.config import Experiment, merge, resolve, settings_table
from atoll.data import Federated
from atoll.data.settings import name_or_folder
from atoll.errors import ConfigError
from atoll.methods.base import Method
from atoll.registry import name_of
from atoll.run import launch
from atoll.run.launch import IN_MEMORY
from atoll.run.loop import Watcher
from atoll.run.reader import Run, load
from atoll.run.retrain import assemble_retraining
from atoll.run.sweep import sweep as run_sweep


def search(
    method: str | type[Method[Any]],
    data: str | Path | Mapping[str, Any] | Federated,
    *,
    out: str | Path,
    rounds: int | None = None,
    preset: str = "small",
    seed: int = 1,
    workers: int | None = None,
    data_dir: str | Path | None = None,
    progress: bool = False,
    watcher: Watcher | None = None,
    settings: Mapping[str, Any] | None = None,
    **method_settings: Any,
) -> Run:
    """Run a method and return its `Run`.

    `method` is a registered name, a class, or its place as `module:Class`. `data` is the name of a data set, a folder
    of own data, a table as in an experiment file's `[data]`, or a `Federated`. Further keywords are settings of the
    method: `search("fedavg", "digits", out="runs/first", lr=0.05)`.

    `progress=True` shows a bar in a terminal or notebook and lines elsewhere; a `watcher` is called after every round.
    `run.problems` then says what went wrong with which clients.
    """
    experiment = _experiment(method, data, rounds, preset, seed, workers, settings, method_settings)
    memory = data if isinstance(data, Federated) else None
    folder = None if data_dir is None else Path(data_dir)
    with _watching(progress, watcher) as watching:
        return launch.start(experiment, Path(out), data=memory, data_dir=folder, watcher=watching)


def sweep(
    method: str | type[Method[Any]],
    data: str | Path | Mapping[str, Any],
    seeds: Iterable[int],
    *,
    out: str | Path,
    rounds: int | None = None,
    preset: str = "small",
    workers: int | None = None,
    data_dir: str | Path | None = None,
    progress: bool = False,
    watcher: Watcher | None = None,
    settings: Mapping[str, Any] | None = None,
    **method_settings: Any,
) -> list[Run]:
    """One run for each seed, in folders of `out`; called again, it continues. Otherwise as `search`."""
    numbers = list(seeds)
    experiment = _experiment(method, data, rounds, preset, 1, workers, settings, method_settings)
    folder = None if data_dir is None else Path(data_dir)
    with _watching(progress, watcher) as watching:
        options = {"watcher": watching}
        return list(run_sweep(experiment, numbers, Path(out), data_dir=folder, watch=lambda _: options))


def retrain(
    path: str | Path,
    pick: str | Sequence[str] = "high",
    *,
    out: str | Path,
    beside: Sequence[str | Path] = (),
    start: str = "scratch",
    groups: int | None = None,
    rounds: int | None = None,
    clients: int | None = None,
    partition: str | None = None,
    central: bool = False,
    cells: int | None = None,
    channels: int | None = None,
    seed: int | None = None,
    workers: int | None = None,
    data: str | Path | Mapping[str, Any] | Federated | None = None,
    private: bool = True,
    data_dir: str | Path | None = None,
    progress: bool = False,
    watcher: Watcher | None = None,
    settings: Mapping[str, Any] | None = None,
    **method_settings: Any,
) -> Run:
    """Train networks of a run, from scratch or from what the run `found`; options as on the command line.

    `pick` names one network or several. Networks of the runs `beside` are trained with them. Other `data` is given as
    to `search`; data in memory is given again. With `groups` the networks are trained in parallel, each on a group of
    clients. The run's `[privacy]` holds for them, too; with `private=False` they are trained without. `settings` are
    tables of an experiment file, such as `{"simulation": {...}}`; further keywords are settings of the method:
    `retrain("runs/first", out="runs/again", lr=0.05)`.
    """
    options = {
        "rounds": rounds,
        "retrain.groups": groups,
        "data.clients": clients,
        "data.partition": partition,
        "central": central,
        "cells": cells,
        "channels": channels,
        "seed": seed,
        "engine.workers": workers,
    }
    named = {} if data is None else {"data": _table(data)}
    others = [load(other) for other in beside]
    picks = pick.split(",") if isinstance(pick, str) else list(pick)
    raw = assemble_retraining(load(path), picks, options | named, start=start, beside=others, private=private)
    experiment = resolve(merge(merge(raw, {raw["method"]: method_settings}), settings or {}))
    memory = data if isinstance(data, Federated) else None
    folder = None if data_dir is None else Path(data_dir)
    with _watching(progress, watcher) as watching:
        return launch.start(experiment, Path(out), data=memory, data_dir=folder, watcher=watching)


def resume(
    path: str | Path,
    *,
    rounds: int | None = None,
    data: Federated | None = None,
    data_dir: str | Path | None = None,
    workers: int | None = None,
    accept_changes: bool = False,
    progress: bool = False,
    watcher: Watcher | None = None,
) -> Run:
    """Continue a run; one on data in memory needs that data again. A finished one is left as it is unless `rounds`
    are more than it had. Options as on the command line."""
    folder = None if data_dir is None else Path(data_dir)
    with _watching(progress, watcher) as watching:
        return launch.resume(
            Path(path),
            rounds=rounds,
            data=data,
            data_dir=folder,
            workers=workers,
            accept_changes=accept_changes,
            watcher=watching,
        )


@contextmanager
def _watching(progress: bool, watcher: Watcher | None) -> Iterator[Watcher | None]:
    """The watcher of a run: the one given, or a progress bar."""
    if not progress:
        yield watcher
        return
    if watcher is not None:
        raise ConfigError(
            "progress=True: a run has one watcher, and another was given; leave one of the two out",
            code="conflicting-settings",
        )
    from atoll.report import terminal

    bar = terminal.progress()
    try:
        yield bar
    finally:
        bar.close()


def _experiment(
    method: str | type[Method[Any]],
    data: str | Path | Mapping[str, Any] | Federated,
    rounds: int | None,
    preset: str,
    seed: int,
    workers: int | None,
    settings: Mapping[str, Any] | None,
    method_settings: Mapping[str, Any],
) -> Experiment:
    name = method if isinstance(method, str) else name_of("methods", method)
    own = {**method_settings, **({} if rounds is None else {"rounds": rounds})}
    raw: dict[str, Any] = {"method": name, "preset": preset, "seed": seed, "data": _table(data)}
    raw[settings_table(name)] = own
    if workers is not None:
        raw["engine"] = {"workers": workers}
    return resolve(merge(raw, settings or {}))


def _table(data: str | Path | Mapping[str, Any] | Federated) -> dict[str, Any]:
    if isinstance(data, Federated):
        return {"name": IN_MEMORY}
    if isinstance(data, Mapping):
        return dict(data)
    if isinstance(data, (str, Path)):
        return dict(name_or_folder(str(data)))
    raise ConfigError(
        f"data = {data!r}: give a data set's name, a folder, a table of data settings or a Federated",
        code="bad-data-argument",
    )
