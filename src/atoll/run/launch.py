"""From an experiment to a run: data, settings fitted to it, clients, directory, loop; and back from a directory."""

from __future__ import annotations

import platform
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from atoll.algorithms.sampling import participants
from atoll.config import Experiment, dump, read_file, resolve, settings_table
from atoll.core.messages import ClientInfo
from atoll.core.stopping import refuse_pointless
from atoll.data import Federated
from atoll.errors import ConfigError, RunDirectoryError, UserError
from atoll.federation.base import Federation
from atoll.federation.engines import Engine, Request, find_engine
from atoll.federation.faults import ON_CLIENT, InjectedFaults
from atoll.federation.journal import Journal
from atoll.methods import find_method
from atoll.preparation.value import Preparation
from atoll.privacy.account import FILE as ACCOUNT
from atoll.run.estimate import Estimate, Rehearsal, rehearse
from atoll.run.exchanges import refuse_late, refuse_unreachable, without_effect
from atoll.run.loop import Loop, Watcher, report_notes
from atoll.run.private import plan_privacy, refuse_before_opening, with_noisy_labels
from atoll.run.reader import Run, load
from atoll.simulation.links import Links, links_for
from atoll.simulation.network import VirtualTime
from atoll.store.directory import SCHEMA, RunDirectory

IN_MEMORY = "in-memory"  # the name of data that was given as an object
LIBRARIES = ("atoll", "torch", "numpy", "pymoo", "scikit-learn", "safetensors")

Stop = Callable[[], bool]


class RemoteLoop(Protocol):
    """What an engine opens if the loop runs in a program beside its clients instead of in this process.

    Both calls follow the run to its end, and raise what that program has raised.
    """

    def start(self, experiment: Experiment, out: Path, watcher: Watcher | None, stop: Stop) -> None:
        """Begin a run in the directory `out`."""

    def resume(self, out: Path, rounds: int | None, accept_changes: bool, watcher: Watcher | None, stop: Stop) -> None:
        """Continue the run in the directory `out`."""


OpenEngine = Callable[[Request], Engine | RemoteLoop]


def start(
    experiment: Experiment,
    out: Path,
    *,
    data: Federated | None = None,
    data_dir: Path | None = None,
    watcher: Watcher | None = None,
    stop: Stop = lambda: False,
    open_engine: OpenEngine | None = None,
) -> Run:
    """Begin a run and follow it to its end. `data` given in memory replaces the experiment's own data table;
    `open_engine` replaces the function that opens the engine of the experiment's `engine.name`."""
    if experiment.simulation is not None:
        experiment = experiment.model_copy(update={"simulation": experiment.simulation.settled()})
    _refuse_faults_at_sites(experiment)
    run = uuid.uuid4().hex
    engine = _open(experiment, open_engine, data, data_dir, run=run)
    if not isinstance(engine, Engine):
        engine.start(experiment, out, watcher, stop)
        return load(out)
    _refuse_too_few(experiment, engine)
    _refuse_unconfirmed(experiment)
    links = _links(experiment, engine, data_dir)
    experiment, engine, projected = _decided(experiment, engine)
    able = find_method(experiment.method).late
    unused = without_effect(experiment, experiment.engine.rules(able, engine.deadline))
    notes = [*engine.notes, *(links.notes if links is not None else ()), *unused]
    notes += [*experiment.settings.without_effect(), *projected]
    report_notes(watcher, notes)
    manifest = _manifest(experiment, engine, links) | {"run": run}
    manifest |= {"notes": notes} if notes else {}
    begins = () if experiment.privacy is None else (ACCOUNT,)
    with RunDirectory.create(out, dump(experiment), manifest, engine.preparation, begins) as directory:
        try:
            _run(experiment, engine, links, run, directory, watcher, stop)
        except UserError:
            directory.discard()  # only the clients' data could show it: the folder is free for the corrected command
            raise
    return load(out)


def estimate(
    experiment: Experiment,
    *,
    data: Federated | None = None,
    data_dir: Path | None = None,
    open_engine: OpenEngine | None = None,
) -> tuple[Estimate, list[str]]:
    """What a run would send, and what its clients would spend under `[privacy]`, in words. Nothing is trained.
    `open_engine` is that of `start`; its transport is not used."""
    if experiment.simulation is not None:
        experiment = experiment.model_copy(update={"simulation": experiment.simulation.settled()})
    if open_engine is None and experiment.engine.name not in ("local", "ray"):
        raise ConfigError(
            f"--estimate: engine {experiment.engine.name!r}: sites say how many rows they have when a run begins; "
            "leave out --federation and give data of the same form with --data",
            code="estimate-on-sites",
        )
    engine = _open(experiment, open_engine, data, data_dir)
    assert isinstance(engine, Engine)  # the others are refused
    _refuse_too_few(experiment, engine)
    links = _links(experiment, engine, data_dir)
    experiment = _fitted(experiment, engine)
    lines = [] if experiment.privacy is None else plan_privacy(experiment, engine).lines()
    method = find_method(experiment.method)(experiment.settings, engine.schema)
    network = experiment.simulation
    clock = VirtualTime(network, links, experiment.seed) if network is not None and links is not None else None
    transport = Rehearsal(experiment.method, experiment.seed)
    rules = experiment.engine.rules(method.late, engine.deadline, method.rounds_late)
    clients = (engine.clients, engine.benchmark, rules, clock, None, engine.held_out, experiment.robust)
    with Federation(transport, *clients) as federation:
        return rehearse(method, federation, transport, experiment.seed), lines


def decided(experiment: Experiment, data_dir: Path | None = None) -> Experiment | None:
    """The experiment as `start` would write it down, with everything decided that is left to the data, which is read.
    None for data of sites, which only they can read."""
    if experiment.engine.name not in ("local", "ray"):
        return None
    if experiment.simulation is not None:
        experiment = experiment.model_copy(update={"simulation": experiment.simulation.settled()})
    here = experiment.engine.model_copy(update={"name": "local", "workers": 0})
    engine = _open(experiment.model_copy(update={"engine": here}), None, None, data_dir)
    assert isinstance(engine, Engine)
    return _decided(experiment, engine)[0]


def _decided(experiment: Experiment, engine: Engine) -> tuple[Experiment, Engine, list[str]]:
    """With everything decided that was left to the data, and what clients will spend under `[privacy]`, in words."""
    experiment = _fitted(experiment, engine)
    if experiment.privacy is None:
        return experiment, engine, []
    engine = with_noisy_labels(engine, experiment.privacy, experiment.seed)
    plan = plan_privacy(experiment, engine)
    return experiment.model_copy(update={"privacy": plan.settings}), engine, plan.lines()


def _fitted(experiment: Experiment, engine: Engine) -> Experiment:
    """With everything decided that was left to the data. What does not fit is refused before anything is written."""
    fitted = experiment.settings.fitted(engine.schema, len(engine.clients))
    find_method(experiment.method)(fitted, engine.schema)
    return experiment.model_copy(update={"data": engine.data, "settings": fitted})


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
    open_engine: OpenEngine | None = None,
) -> Run:
    """Continue where a run stopped, to the same result as if it never had; with `rounds`, further than was planned.

    A run that has finished these rounds is left as it is.
    """
    before = load(path)
    if is_finished(before, rounds):
        return before
    with RunDirectory.reopen(path) as directory:
        manifest = before.manifest
        experiment = _further(_settings_of(path), rounds)
        if workers is not None:
            settings = experiment.engine.model_copy(update={"workers": workers})
            experiment = experiment.model_copy(update={"engine": settings})
        if data is None and experiment.data.name == IN_MEMORY:
            raise RunDirectoryError(
                f"{path}: its data was in memory; give it again: atoll.resume({str(path)!r}, data=...)",
                code="data-in-memory",
            )
        engine = _open(experiment, open_engine, data, data_dir, path)
        if isinstance(engine, Engine):
            links = _links(experiment, engine, data_dir)
            if experiment.privacy is not None:
                engine = with_noisy_labels(engine, experiment.privacy, experiment.seed)
            if not accept_changes:
                _refuse_changes(path, manifest, _manifest(experiment, engine, links))
                directory.refuse_changes()
            if rounds is not None:
                directory.reconfigure(dump(experiment))
            _run(experiment, engine, links, manifest.get("run", ""), directory, watcher, stop)
    if not isinstance(engine, Engine):  # with the directory closed: the other program opens it
        engine.resume(path, rounds, accept_changes, watcher, stop)
    return load(path)


def is_finished(run: Run, rounds: int | None = None) -> bool:
    """Whether the run has a result for the rounds that it is planned for now, or for this many."""
    if not run.finished:
        return False
    planned: int = run.result["planned_rounds"]
    return planned >= _further(_settings_of(run.path), rounds).settings.rounds


def _settings_of(path: Path) -> Experiment:
    return resolve(read_file(path / "config.toml"), complete=True)


def _open(
    experiment: Experiment,
    open_engine: OpenEngine | None,
    data: Federated | None,
    data_dir: Path | None,
    resumed: Path | None = None,
    run: str = "",
) -> Engine | RemoteLoop:
    from atoll.training.determinism import prepare_environment, single_thread

    prepare_environment()  # every process of a run computes with one thread
    single_thread()
    method = find_method(experiment.method)
    refuse_late(experiment, method.late)
    refuse_before_opening(experiment, method)
    refuse_pointless(experiment.stop, experiment.settings.rounds)
    request = Request(
        experiment.engine,
        experiment.data,
        experiment.seed,
        experiment.method,
        method.__module__,
        method.centralised,
        experiment.simulation is not None,
        data,
        data_dir,
        resumed,
        experiment.privacy,
        run,
    )
    found: Engine | RemoteLoop = (open_engine or find_engine(experiment.engine.name))(request)
    return found


def _refuse_too_few(experiment: Experiment, engine: Engine) -> None:
    """Robust rules need three clients in a round: the fraction that is drawn, and of these as many as it waits for."""
    clients = len(engine.clients)
    drawn = participants(clients, getattr(experiment.settings, "fraction", 1.0))
    experiment.robust.refuse_too_few(clients, experiment.engine.rules(("drop",)).needed(drawn))
    refuse_unreachable(experiment, drawn)


def _links(experiment: Experiment, engine: Engine, data_dir: Path | None) -> Links | None:
    """The clients' links on the virtual network, if there is one."""
    if experiment.simulation is None:
        return None
    return links_for(experiment.simulation, experiment.seed, [info.name for info in engine.clients], data_dir)


def _run(
    experiment: Experiment,
    engine: Engine,
    links: Links | None,
    run: str,
    directory: RunDirectory,
    watcher: Watcher | None,
    stop: Stop,
) -> None:
    method = find_method(experiment.method)(experiment.settings, engine.schema)
    network = experiment.simulation
    rules = experiment.engine.rules(method.late, engine.deadline, method.rounds_late)
    virtual = network is not None and links is not None
    clock = VirtualTime(network, links, experiment.seed) if network is not None and links is not None else None
    # In real time the machine decides which replies are late: a resumed run must count the same ones.
    timed = not virtual and (not rules.in_order or rules.deadline is not None)
    journal = Journal(directory.path / "journal") if engine.journal or timed else None
    transport = engine.transport(run, directory.path)
    guard = None if experiment.privacy is None else plan_privacy(experiment, engine).guard(directory.path)
    clients = (engine.clients, engine.benchmark, rules, clock, journal, engine.held_out, experiment.robust, guard)
    if experiment.faults is not None:
        transport = InjectedFaults(transport, experiment.faults, [i.name for i in engine.clients], experiment.seed)
    with Federation(transport, *clients) as federation:
        Loop(
            method,
            _preparations(engine),
            experiment.seed,
            experiment.settings.rounds,
            experiment.patience,
            federation,
            directory,
            watcher,
            stop,
            experiment.stop,
        ).run()


def _preparations(engine: Engine) -> Callable[[str | None], Preparation]:
    """The preparation of raw rows for a client's own network, where it is known here, and for all others."""
    own = engine.own_preparation
    return lambda client: engine.preparation if client is None or own is None else own(client)


def _refuse_faults_at_sites(experiment: Experiment) -> None:
    """A site does the jobs of its methods only: it cannot be made to fail on purpose."""
    rules = experiment.faults.rule if experiment.faults is not None else []
    kind = next((rule.kind for rule in rules if rule.kind in ON_CLIENT), None)
    if kind is not None and experiment.engine.name not in ("local", "ray"):
        raise ConfigError(
            f"faults: kind = {kind!r}: it happens while a client works, and sites do no such jobs; use engine local or "
            "ray, or another kind",
            code="inapplicable-setting",
        )


def _refuse_unconfirmed(experiment: Experiment) -> None:
    """Robust settings that the method has no use for are refused: they would promise what is not done."""
    method = find_method(experiment.method)
    if experiment.robust.confirm and not method.confirms:
        raise ConfigError(
            f"robust.confirm = true: {method.name} does not choose between networks that other clients could confirm; "
            "leave it out",
            code="inapplicable-setting",
        )
    robust = experiment.robust
    if method.name == "nevofed" and not robust.averaging.plain:
        setting = f"clip = {robust.clip}" if robust.models == "mean" else f"models = {robust.models!r}"
        raise ConfigError(
            f"robust.{setting}: nevofed averages no models; leave it out, and use robust.fitness, confirm or guests",
            code="inapplicable-setting",
        )
    if robust.guests < 1 and method.name != "nevofed":
        raise ConfigError(
            f"robust.guests = {robust.guests}: no networks visit clients in {method.name}; leave it out",
            code="inapplicable-setting",
        )


def _further(experiment: Experiment, rounds: int | None) -> Experiment:
    planned = experiment.settings.rounds
    if rounds is None:
        return experiment
    if rounds < planned:
        raise ConfigError(
            f"--rounds {rounds}: the run was planned for {planned}; give {planned} or more",
            code="fewer-rounds-than-planned",
        )
    # Validated again: a number of rounds may not fit the phases of a method.
    settings = type(experiment.settings).model_validate({**experiment.settings.model_dump(), "rounds": rounds})
    return experiment.model_copy(update={"settings": settings})


def _manifest(experiment: Experiment, engine: Engine, links: Links | None) -> dict[str, Any]:
    from atoll.training.determinism import record

    method = find_method(experiment.method)
    return {
        "schema": SCHEMA,
        "method": settings_table(experiment.method),
        "metrics_kind": method.metrics_kind,
        "measured_on": method(experiment.settings, engine.schema).measured_on,
        "recommended": method.recommended,
        "centralised": method.centralised,
        "source": experiment.data.name or Path(experiment.data.folder or "").name,  # of the data
        "seed": experiment.seed,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in LIBRARIES},
        "computing": record(),
        # With the links' digest: a resumed run must find the same ones.
        "data": engine.about | ({} if links is None else {"links": links.digest}),
        "clients": {info.name: _rows_of(info) for info in engine.clients},
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _rows_of(info: ClientInfo) -> dict[str, Any]:
    """What a client has reported: the rows of its parts and, if it shares them, its training rows of each class."""
    sizes: dict[str, Any] = {part: size for part, size in info.sizes.items() if size}
    return sizes | ({} if info.labels is None else {"labels": list(info.labels)})


def _refuse_changes(path: Path, old: dict[str, Any], new: dict[str, Any]) -> None:
    """A run continues to the same bits only with the same versions, threads and data."""
    for part in ("versions", "computing", "data"):
        for key in old[part]:
            before, now = old[part][key], new[part].get(key)
            if before != now:
                raise RunDirectoryError(
                    f"{path}: {part}.{key} was {before!r} when the run started and is {now!r} now; the result would "
                    "not be the same; restore it, or continue all the same with --accept-changes",
                    code="run-changed",
                )
