"""From an experiment to a run: data, settings fitted to it, clients, directory, loop; and back from a directory."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from atoll.config import Experiment, dump, read_file, resolve, settings_table
from atoll.data import Federated
from atoll.deploy.flower import follow
from atoll.errors import ConfigError, RunDirectoryError
from atoll.federation.engines import Engine, Request, find_engine
from atoll.methods import find_method
from atoll.run.loop import Loop, Watcher
from atoll.run.reader import Run, load
from atoll.simulation.engine import on_network
from atoll.store import RunDirectory

IN_MEMORY = "in-memory"  # the name of data that was given as an object
LIBRARIES = ("atoll", "torch", "numpy", "pymoo", "scikit-learn", "safetensors")

Stop = Callable[[], bool]


def start(
    experiment: Experiment,
    out: Path,
    *,
    data: Federated | None = None,
    data_dir: Path | None = None,
    watcher: Watcher | None = None,
    stop: Stop = lambda: False,
    grid: Any = None,
) -> Run:
    """Begin a run and see it through. `data` given in memory stands for the experiment's own data table; `grid` is
    Flower's, inside of its ServerApp."""
    if _on_sites(experiment) and grid is None:
        return follow.start(follow.link_of(experiment), experiment, out, watcher=watcher, stop=stop)
    _prepare(experiment)
    if experiment.network is not None:
        experiment = experiment.model_copy(update={"network": experiment.network.settled()})
    engine = _engine(experiment, data, data_dir, grid=grid)
    fitted = experiment.settings.fitted(engine.schema, engine.clients)
    experiment = experiment.model_copy(update={"data": engine.data, "settings": fitted})
    find_method(experiment.method)(fitted, engine.schema)  # what does not fit is said before anything is written
    manifest = _manifest(experiment, engine) | {"run": uuid.uuid4().hex}
    with RunDirectory.create(out, dump(experiment), manifest) as directory:
        try:
            _run(experiment, engine, manifest["run"], directory, watcher, stop)
        except ConfigError:
            directory.discard()  # what only the clients' data could tell: the folder is free for the mended command
            raise
    return load(out)


def resume(
    path: Path,
    *,
    rounds: int | None = None,
    workers: int | None = None,
    data: Federated | None = None,
    data_dir: Path | None = None,
    accept_changes: bool = False,
    watcher: Watcher | None = None,
    stop: Stop = lambda: False,
    grid: Any = None,
) -> Run:
    """Go on where a run stopped, to the same result as if it never had; with `rounds`, further than was planned."""
    if grid is None and (path / "config.toml").is_file():
        experiment = resolve(read_file(path / "config.toml"), complete=True)
        if _on_sites(experiment):
            link = follow.link_of(experiment)
            return follow.resume(link, path, rounds, accept_changes, watcher=watcher, stop=stop)
    with RunDirectory.reopen(path) as directory:
        experiment = resolve(read_file(path / "config.toml"), complete=True)
        experiment = _further(experiment, rounds)
        if workers is not None:
            settings = experiment.engine.model_copy(update={"workers": workers})
            experiment = experiment.model_copy(update={"engine": settings})
        _prepare(experiment)
        if data is None and experiment.data.name == IN_MEMORY:
            raise RunDirectoryError(
                f"{path}: its data was in memory; give it again: atoll.resume({str(path)!r}, data=...)",
                code="data-in-memory",
            )
        engine = _engine(experiment, data, data_dir, path, grid)
        manifest = load(path).manifest
        if not accept_changes:
            _refuse_changes(path, manifest, _manifest(experiment, engine))
        if rounds is not None:
            directory.reconfigure(dump(experiment))
        _run(experiment, engine, manifest.get("run", ""), directory, watcher, stop)
    return load(path)


def _on_sites(experiment: Experiment) -> bool:
    """Whether the loop of a run belongs into a program beside a federation's link."""
    return experiment.engine.name == "flower" and experiment.engine.federation is not None


def _prepare(experiment: Experiment) -> None:
    """Every process of a run computes with one thread; what the settings ask of this machine must be there."""
    import torch

    from atoll.training.determinism import prepare_environment, single_thread

    prepare_environment()
    single_thread()
    device = experiment.engine.device
    here = experiment.engine.name != "flower"  # sites compute on their own machines
    if device != "cpu" and here and not torch.cuda.is_available():
        raise ConfigError(
            f"engine.device = {device!r}: torch finds no such device here; use cpu", code="device-missing"
        )


def _engine(
    experiment: Experiment,
    data: Federated | None,
    data_dir: Path | None,
    resumed: Path | None = None,
    grid: Any = None,
) -> Engine:
    """The engine that the experiment names, on the virtual network if it has one."""
    method = find_method(experiment.method)
    request = Request(
        experiment.engine,
        experiment.data,
        experiment.seed,
        experiment.method,
        method.__module__,
        method.centralised,
        data,
        data_dir,
        resumed,
        grid,
    )
    engine = find_engine(experiment.engine.name)(request)
    if experiment.network is None:
        return engine
    return on_network(engine, experiment.network, request, method.takes_late)


def _run(
    experiment: Experiment,
    engine: Engine,
    run: str,
    directory: RunDirectory,
    watcher: Watcher | None,
    stop: Stop,
) -> None:
    method = find_method(experiment.method)(experiment.settings, engine.schema)
    with engine.federation(run, directory.path) as federation:
        Loop(
            method,
            engine.schema,
            experiment.seed,
            experiment.settings.rounds,
            experiment.patience,
            federation,
            directory,
            watcher,
            stop,
        ).run()


def _further(experiment: Experiment, rounds: int | None) -> Experiment:
    planned = experiment.settings.rounds
    if rounds is None:
        return experiment
    if rounds < planned:
        raise ConfigError(
            f"--rounds {rounds}: the run was planned for {planned}; give {planned} or more",
            code="fewer-rounds-than-planned",
        )
    settings = experiment.settings.model_copy(update={"rounds": rounds})
    return experiment.model_copy(update={"settings": settings})


def _manifest(experiment: Experiment, engine: Engine) -> dict[str, Any]:
    from atoll.training.determinism import record

    method = find_method(experiment.method)
    return {
        "schema": 1,
        "method": settings_table(experiment.method),
        "metrics_kind": method.metrics_kind,
        "centralised": method.centralised,
        "seed": experiment.seed,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "computing": record(),
        "data": engine.about(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _refuse_changes(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """A run goes on to the same bits only with the same versions, threads and data."""
    for part in ("versions", "computing", "data"):
        for key in old[part]:
            before, now = old[part][key], new[part].get(key)
            if before != now:
                raise RunDirectoryError(
                    f"{path}: {part}.{key} was {before!r} when the run started and is {now!r} now; the result would "
                    "not be the same; restore it, or go on all the same with --accept-changes",
                    code="run-changed",
                )
