"""What every method promises, as tests."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from atoll.config import Experiment, resolve
from atoll.data import Federated
from atoll.federation.base import Federation
from atoll.federation.local import LocalFederation
from atoll.methods import find_method
from atoll.reading import Run, load
from atoll.run import Loop
from atoll.store import RunDirectory
from atoll.testing.data import made_table
from atoll.testing.scripted import FaultyTransport, StrictTransport

Outcome = dict[str, Any]


class MethodContract:
    """Derive and name the method; `settings` makes its runs short, `data` gives it something it can work on."""

    method: ClassVar[str]
    settings: ClassVar[dict[str, Any]] = {"rounds": 4}

    def data(self) -> Federated:
        return made_table()

    def experiment(self, seed: int) -> Experiment:
        raw = {"method": self.method, "seed": seed, "data": {"name": "in-memory"}, self.method: self.settings}
        return resolve(raw)

    # -- the promises -----------------------------------------------------------------------------------------------

    def test_same_seed_same_run(self, tmp_path: Path) -> None:
        assert self.outcome(tmp_path / "a") == self.outcome(tmp_path / "b")

    def test_other_seed_other_run(self, tmp_path: Path) -> None:
        assert self.outcome(tmp_path / "a")["candidates"] != self.outcome(tmp_path / "b", seed=2)["candidates"]

    def test_resumed_equals_uninterrupted(self, tmp_path: Path) -> None:
        whole = self.outcome(tmp_path / "whole")
        for stop_after in (0, 1, 3):
            folder = tmp_path / f"stopped-{stop_after}"
            self.run(folder, stop_after=stop_after)
            assert not load(folder).finished
            assert self.outcome(folder, again=True) == whole

    def test_worker_count_does_not_matter(self, tmp_path: Path) -> None:
        serial = self.outcome(tmp_path / "serial")
        for workers in (1, 2, 3):
            assert self.outcome(tmp_path / str(workers), workers=workers) == serial

    def test_failing_clients_do_not_stop_a_run(self, tmp_path: Path) -> None:
        if find_method(self.method).pooled:
            return  # there is only one client
        victim = self.data().names[1]

        def wrap(federation: Federation) -> None:
            inner = federation._transport
            federation._transport = FaultyTransport(
                inner, lambda task, number: task.client == victim and number % 2 == 1
            )

        run = self.run(tmp_path / "run", prepare=wrap)
        assert run is not None and run.finished
        assert run.result["ledger"]["replies"]["failed"] > 0

    def test_global_random_state_is_untouched(self, tmp_path: Path) -> None:
        import torch

        def states() -> tuple[Any, ...]:
            return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

        before = states()
        self.run(tmp_path / "run")
        assert states() == before

    def test_only_wire_bytes_are_exchanged(self, tmp_path: Path) -> None:
        """Payloads, memory and state survive the wire: running on decoded copies changes nothing."""

        def wrap(federation: Federation) -> None:
            federation._transport = StrictTransport(federation._transport)

        assert self.outcome(tmp_path / "strict", prepare=wrap) == self.outcome(tmp_path / "plain")

    def test_found_networks_can_be_taken_away(self, tmp_path: Path) -> None:
        """Each candidate's file gives an ordinary module that works on a single row."""
        import torch

        run = self.run(tmp_path / "run")
        assert run is not None and run.result["candidates"]
        shape = self.data().schema.shape
        for candidate in run.result["candidates"]:
            assert {"error", "macs", "params", "upload_bytes"} <= candidate["objectives"].keys()
            module = run.model(candidate["id"])
            assert module(torch.zeros(1, *shape)).shape == (1, self.data().schema.outputs)

    # -- how they are tried -------------------------------------------------------------------------------------------

    def outcome(self, folder: Path, **options: Any) -> Outcome:
        """What must be equal between two runs: everything in the result but the time it took, and every event."""
        run = self.run(folder, **options)
        assert run is not None
        result = {key: value for key, value in run.result.items() if key != "wall_seconds"}
        events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in run.history]
        return json.loads(json.dumps({**result, "events": events}))  # type: ignore[no-any-return]

    def run(
        self,
        folder: Path,
        *,
        seed: int = 1,
        workers: int = 0,
        stop_after: int | None = None,
        again: bool = False,
        prepare: Any = None,
    ) -> Run | None:
        """One run in `folder`; None if it was stopped before its end."""
        from atoll.errors import Paused

        experiment, data = self.experiment(seed), self.data()
        method_class = find_method(self.method)
        if method_class.pooled:
            data = data.pooled()
        settings = experiment.settings.fitted(data.schema, len(data.names))
        method = method_class(settings, data.schema)
        directory = RunDirectory.reopen(folder) if again else RunDirectory.create(folder, "", {"method": self.method})
        with directory, LocalFederation(data, seed, workers) as federation:
            if prepare is not None:
                prepare(federation)
            loop = Loop(method, data.schema, seed, settings.rounds, 3, federation, directory)
            if stop_after is not None:
                loop = replace(loop, stop=lambda: len(load(folder).rounds) >= stop_after)
            try:
                loop.run()
            except Paused:
                return None
        return load(folder)
