"""The contract of every method, as tests."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import TypeAdapter

from atoll.config import Experiment, resolve, settings_table
from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.local import local_federation
from atoll.methods import find_method
from atoll.run.loop import Loop
from atoll.run.metrics import KINDS
from atoll.run.reader import Run, load
from atoll.simulation.links import Link, Links
from atoll.simulation.network import VirtualTime
from atoll.simulation.settings import SimulationSettings
from atoll.store import RunDirectory
from atoll.testing.data import made_table
from atoll.testing.scripted import FaultyTransport, StrictTransport

if TYPE_CHECKING:
    from pytest import TempPathFactory

Outcome = dict[str, Any]


def comparable(run: Run) -> Outcome:
    """What must be equal between two runs: everything in the result but the time it took, and every event."""
    result = {key: value for key, value in run.result.items() if key != "wall_seconds"}
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in run.history]
    return json.loads(json.dumps({**result, "events": events}))  # type: ignore[no-any-return]


class MethodContract:
    """Derive and name the method, registered or as `module:Class`.

    `settings` makes its runs short, `data` gives it something it can work on.
    """

    method: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {"rounds": 4}
    _baseline: ClassVar[Run]

    def data(self) -> Federated:
        return made_table()

    def experiment(self, seed: int) -> Experiment:
        own = settings_table(self.method)
        return resolve({"method": self.method, "seed": seed, "data": {"name": "in-memory"}, own: self.settings})

    # -- the contract -----------------------------------------------------------------------------------------------

    def test_same_seed_same_run(self, tmp_path: Path, tmp_path_factory: TempPathFactory) -> None:
        """And global random state is untouched."""
        import torch

        def states() -> tuple[Any, ...]:
            return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

        expected = comparable(self.baseline(tmp_path_factory))
        before = states()
        assert self.outcome(tmp_path / "again") == expected
        assert states() == before

    def test_other_seed_other_run(self, tmp_path: Path, tmp_path_factory: TempPathFactory) -> None:
        plain = comparable(self.baseline(tmp_path_factory))
        assert self.outcome(tmp_path / "other", seed=2)["candidates"] != plain["candidates"]

    def test_resumed_equals_uninterrupted(self, tmp_path: Path, tmp_path_factory: TempPathFactory) -> None:
        """One run that is stopped three times: before its first round, after it, and before the last."""
        folder = tmp_path / "stopped"
        for stop_after in (0, 1, 3):
            self.run(folder, stop_after=stop_after, again=stop_after > 0)
            stopped = load(folder)
            assert not stopped.finished and len(stopped.rounds) == stop_after
        assert self.outcome(folder, again=True) == comparable(self.baseline(tmp_path_factory))

    def test_a_budget_that_is_spent_in_the_first_round_leaves_a_usable_network(self, tmp_path: Path) -> None:
        from atoll.api import search

        limits = {"stop": {"macs": 1}}
        run = search(self.method, self.data(), out=tmp_path / "short", workers=0, settings=limits, **self.settings)
        assert run.result["rounds"] == 1 and "stop.macs" in run.result["stopped"]
        assert run.recommended in [pick for candidate in run.result["candidates"] for pick in candidate["picks"]]

    def test_worker_count_does_not_matter(self, tmp_path: Path, tmp_path_factory: TempPathFactory) -> None:
        assert self.outcome(tmp_path / "workers", workers=2) == comparable(self.baseline(tmp_path_factory))

    def test_failing_clients_do_not_stop_a_run(self, tmp_path: Path) -> None:
        if find_method(self.method).centralised:
            return  # there is only one client
        victim = self.data().names[1]

        def wrap(federation: Federation) -> None:
            federation.transport = FaultyTransport(
                federation.transport, lambda task, number: task.client == victim and number % 2 == 1
            )

        run = self.run(tmp_path / "run", prepare=wrap)
        assert run is not None and run.finished
        assert run.result["ledger"]["replies"]["failed"] > 0

    def test_it_takes_a_quorum_and_counts_late_replies_only_if_it_can_use_them(self, tmp_path: Path) -> None:
        """On the virtual network, where one client takes three times as long as the others."""
        method = find_method(self.method)
        if method.centralised:
            return
        names = self.data().names
        links = Links({name: Link(speed=1e9 if name == names[1] else 3e9) for name in names}, "")
        rules = ExchangeRules(quorum=1 - 1 / len(names), late=method.late[0])
        run = self.run(tmp_path / "run", clock=VirtualTime(SimulationSettings(), links, 1), rules=rules)
        assert run is not None and run.finished
        replies = run.result["ledger"]["replies"]
        assert replies["late"] == 0 if method.late == ("drop",) else replies["late"] + replies["stale"] > 0
        assert min(replies.values()) >= 0

    def test_only_wire_bytes_are_exchanged(self, tmp_path: Path, tmp_path_factory: TempPathFactory) -> None:
        """Payloads, memory and state survive the wire: running on decoded copies changes nothing."""

        def wrap(federation: Federation) -> None:
            federation.transport = StrictTransport(federation.transport)

        plain = comparable(self.baseline(tmp_path_factory))
        assert self.outcome(tmp_path / "strict", prepare=wrap) == plain

    def test_found_networks_are_usable_modules(self, tmp_path_factory: TempPathFactory) -> None:
        """Each candidate's file gives an ordinary module that works on a single row."""
        import torch

        run = self.baseline(tmp_path_factory)
        assert run.result["candidates"]
        shape = self.data().schema.shape
        for candidate in run.result["candidates"]:
            assert {"error", "macs", "params", "upload_bytes"} <= candidate["objectives"].keys()
            module = run.model(candidate["id"])
            assert module(torch.zeros(1, *shape)).shape == (1, self.data().schema.outputs)

    def test_metrics_are_of_the_declared_kind(self, tmp_path_factory: TempPathFactory) -> None:
        """Keys of the kind have values of its types; keys and kinds of the method's own are its own affair."""
        kind = find_method(self.method).metrics_kind
        if kind in KINDS:
            declared = TypeAdapter(KINDS[kind])
            for event in self.baseline(tmp_path_factory).rounds:
                declared.validate_python(event["metrics"])

    # -- how they are tried -------------------------------------------------------------------------------------------

    @classmethod
    def baseline(cls, folders: TempPathFactory) -> Run:
        """The run that others are compared with: seed 1, in this process. Made once per class; do not modify it."""
        if "_baseline" not in vars(cls):  # not inherited: a subclass may have other settings
            run = cls().run(folders.mktemp("baseline") / "run")
            assert run is not None
            cls._baseline = run
        return cls._baseline

    def outcome(self, folder: Path, **options: Any) -> Outcome:
        """The comparable part of a new run; `options` are those of `run`."""
        run = self.run(folder, **options)
        assert run is not None
        return comparable(run)

    def run(
        self,
        folder: Path,
        *,
        seed: int = 1,
        workers: int = 0,
        stop_after: int | None = None,
        again: bool = False,
        prepare: Any = None,
        **engine: Any,
    ) -> Run | None:
        """One run in `folder`, by an engine with these options; None if it was stopped early."""
        from atoll.errors import Paused

        experiment, data = self.experiment(seed), self.data()
        method_class = find_method(self.method)
        if method_class.centralised:
            data = data.centralised()
        settings = experiment.settings.fitted(data.schema, len(data.names))
        method = method_class(settings, data.schema)
        directory = (
            RunDirectory.reopen(folder)
            if again
            else RunDirectory.create(folder, "", {"method": self.method}, data.preparation)
        )
        with directory, local_federation(data, seed, workers, **engine) as federation:
            if prepare is not None:
                prepare(federation)
            loop = Loop(method, lambda client: data.preparation, seed, settings.rounds, 3, federation, directory)
            if stop_after is not None:
                loop = replace(loop, stop=lambda: len(load(folder).rounds) >= stop_after)
            try:
                loop.run()
            except Paused:
                return None
        return load(folder)
