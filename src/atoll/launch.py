"""From an experiment to a run: data, settings fitted to it, clients, directory, loop; and back from a directory."""

from __future__ import annotations

import platform
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from atoll.config import Experiment, dump, read_file, resolve
from atoll.data import DataSettings, Federated
from atoll.data.loading import settle
from atoll.errors import ConfigError, RunDirectoryError
from atoll.federation.base import Federation
from atoll.federation.network import NetworkFederation
from atoll.federation.network_links import Links, links_for
from atoll.methods import find_method
from atoll.reading import Run, load
from atoll.run import Loop, Watcher
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
) -> Run:
    """Begin a run and see it through. `data` given in memory stands for the experiment's own data table."""
    _prepare(experiment)
    method_class = find_method(experiment.method)
    federated, data_settings = _data(experiment, data, data_dir)
    fitted = experiment.settings.fitted(federated.schema, len(federated.names))
    network = None if experiment.network is None else experiment.network.settled()
    experiment = experiment.model_copy(update={"data": data_settings, "settings": fitted, "network": network})
    method_class(fitted, federated.schema)  # what does not fit is said before anything is written
    links = _links(experiment, federated, data_dir)
    with RunDirectory.create(out, dump(experiment), _manifest(experiment, federated, links)) as directory:
        _run(experiment, federated, links, directory, watcher, stop)
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
) -> Run:
    """Go on where a run stopped, to the same result as if it never had; with `rounds`, further than was planned."""
    with RunDirectory.reopen(path) as directory:
        experiment = resolve(read_file(path / "config.toml"), complete=True)
        experiment = _further(experiment, rounds)
        if workers is not None:
            engine = experiment.engine.model_copy(update={"workers": workers})
            experiment = experiment.model_copy(update={"engine": engine})
        _prepare(experiment)
        if data is None and experiment.data.name == IN_MEMORY:
            raise RunDirectoryError(
                f"{path}: its data was in memory; give it again: atoll.resume({str(path)!r}, data=...)"
            )
        federated, _ = _data(experiment, data, data_dir)
        links = _links(experiment, federated, data_dir)
        if not accept_changes:
            _refuse_changes(path, load(path).manifest, _manifest(experiment, federated, links))
        if rounds is not None:
            directory.reconfigure(dump(experiment))
        _run(experiment, federated, links, directory, watcher, stop)
    return load(path)


def _prepare(experiment: Experiment) -> None:
    """Every process of a run computes with one thread; what the settings ask of this machine must be there."""
    import torch

    from atoll.learning.determinism import prepare_environment, single_thread

    prepare_environment()
    single_thread()
    device = experiment.engine.device
    if device != "cpu" and not torch.cuda.is_available():
        raise ConfigError(f"engine.device = {device!r}: torch finds no such device here; use cpu")


def _data(experiment: Experiment, given: Federated | None, data_dir: Path | None) -> tuple[Federated, DataSettings]:
    """The federation's data, and the data table with everything decided."""
    settings = experiment.data
    federated, settings = (given, settings) if given is not None else settle(settings, experiment.seed, data_dir)
    return (federated.pooled() if find_method(experiment.method).pooled else federated), settings


def _links(experiment: Experiment, federated: Federated, data_dir: Path | None) -> Links | None:
    """What lies between server and clients on the virtual network, if the run is on one."""
    network = experiment.network
    if network is None:
        return None
    if experiment.engine.deadline is not None:
        raise ConfigError("engine.deadline counts real seconds, the virtual network its own; set network.deadline")
    if network.staleness is not None and not getattr(find_method(experiment.method), "takes_late", False):
        raise ConfigError(
            f"network.staleness: method {experiment.method} waits for every reply and knows no late ones; set "
            "network.dropout or network.deadline",
        )
    return links_for(network, experiment.seed, federated.names, data_dir)


def _run(
    experiment: Experiment,
    federated: Federated,
    links: Links | None,
    directory: RunDirectory,
    watcher: Watcher | None,
    stop: Stop,
) -> None:
    method = find_method(experiment.method)(experiment.settings, federated.schema)
    with _federation(experiment, federated, links) as federation:
        Loop(
            method,
            federated.schema,
            experiment.seed,
            experiment.settings.rounds,
            experiment.patience,
            federation,
            directory,
            watcher,
            stop,
        ).run()


def _federation(experiment: Experiment, federated: Federated, links: Links | None) -> Federation:
    from atoll.federation.local import LocalFederation

    engine = experiment.engine
    # A worker process cannot import what was defined in a notebook.
    module = find_method(experiment.method).__module__
    workers = 0 if module == "__main__" else engine.workers
    local = LocalFederation(federated, experiment.seed, workers, engine.device, engine.deadline, preload=[module])
    if experiment.network is None or links is None:
        return local
    return NetworkFederation(local, experiment.network, links, experiment.seed)


def _further(experiment: Experiment, rounds: int | None) -> Experiment:
    planned = experiment.settings.rounds
    if rounds is None:
        return experiment
    if rounds < planned:
        raise ConfigError(f"--rounds {rounds}: the run was planned for {planned}; give {planned} or more")
    settings = experiment.settings.model_copy(update={"rounds": rounds})
    return experiment.model_copy(update={"settings": settings})


def _manifest(experiment: Experiment, federated: Federated, links: Links | None) -> dict[str, Any]:
    from atoll.learning.determinism import record

    data = {"digest": federated.digest(), "clients": len(federated.names), "rows": federated.rows}
    return {
        "schema": 1,
        "method": experiment.method,
        "seed": experiment.seed,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "computing": record(),
        "data": data if links is None else {**data, "network": links.digest},
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
                )
