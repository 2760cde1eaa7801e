"""The loop of every run: it calls `step`, appends an event and writes a checkpoint, whatever the method."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Any, Protocol

from atoll.core.ledger import Account, Ledger
from atoll.core.messages import Schema
from atoll.errors import NotResumable, Paused, TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.base import Candidate, Method, Metrics
from atoll.rng import stream
from atoll.store import Model, RunDirectory

CHECKPOINT_SHARE = 20  # checkpoints may take 1/20 of the time


class Watcher(Protocol):
    """An observer of the run, such as a progress bar or a log. It is called between rounds, never during one."""

    def round_done(self, number: int, rounds: int, metrics: Metrics, total: Account, seconds: float) -> None: ...

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None: ...


@dataclass
class Loop:
    """One run: a method, its federation, and its run directory."""

    method: Method[Any]
    schema: Schema
    seed: int
    rounds: int
    patience: int
    federation: Federation
    directory: RunDirectory
    watcher: Watcher | None = None
    stop: Callable[[], bool] = lambda: False

    def run(self) -> dict[str, Any]:
        """Run from the last checkpoint, or from the start, to the result, and write that to the directory."""
        saved = self.directory.last_checkpoint()
        tried = saved.get("tried", 0) if saved is not None else 0
        state, before = self._restore(saved) if saved is not None else self._begin()
        clock = _Clock(before)
        metrics = saved["metrics"] if saved is not None else {}
        checkpoint = _Cadence()
        while not self.method.done(state):
            # What a pause saves: a failed round must leave no trace.
            value = self._value(state, metrics, clock.seconds, tried)
            if self.stop():
                self._checkpoint(state, value)
                raise Paused(f"stopped after round {state.round} of {self.rounds}", code="run-stopped")
            if checkpoint.due():
                checkpoint.measure(partial(self._checkpoint, state, value))
            state, metrics = self._round(state, value, clock, tried)
            tried = 0
        value = self._value(state, metrics, clock.seconds, tried)
        self._checkpoint(state, value)
        return self._finish(state, value, clock, tried)

    def _begin(self) -> tuple[Any, float]:
        return self.method.init(self.federation, stream(self.seed, "init")), 0.0

    def _restore(self, saved: Mapping[str, Any]) -> tuple[Any, float]:
        self.federation.restore(saved["federation"])
        self.federation.ledger.rounds = Ledger.from_plain(saved["ledger"]).rounds
        return self.method.State(**saved["state"]), saved["wall_seconds"]

    def _value(self, state: Any, metrics: Metrics, seconds: float, tried: int) -> dict[str, Any]:
        return {
            "state": {item.name: getattr(state, item.name) for item in fields(state)},
            "federation": self.federation.snapshot(),
            "ledger": self.federation.ledger.to_plain(),
            "metrics": metrics,
            "wall_seconds": seconds,
            "tried": tried,  # failed attempts of the next round before this checkpoint
        }

    def _checkpoint(self, state: Any, value: dict[str, Any]) -> None:
        self.directory.checkpoint(state.round, value)
        self.federation.saved(value["federation"])

    def _round(self, state: Any, value: dict[str, Any], clock: _Clock, tried: int) -> tuple[Any, Metrics]:
        """One round. If too few clients reply it is repeated with others; after `patience` failures the run pauses.

        `tried` counts the failures before such a pause. If the clients reply after it, the result is the same as
        without the failures.
        """
        number = state.round + 1
        self.federation.begin(number, tried)
        for attempt in range(1, self.patience + 1):
            try:
                rng = stream(self.seed, "server", number, attempt)
                state, metrics = self.method.step(state, self.federation, rng)
            except TooFewReplies as problem:
                reason, resumable = str(problem), not isinstance(problem, NotResumable)
                self.directory.event({"round": number, "failed": reason, "attempt": attempt})
                if self.watcher:
                    self.watcher.round_failed(number, reason, attempt, self.patience)
                continue
            self._after_round(state, metrics, clock)
            return state, metrics
        self._checkpoint(state, value | {"tried": tried + self.patience})
        raise Paused(f"round {number} failed {self.patience} times in a row: {reason}", resumable, code="round-failed")

    def _after_round(self, state: Any, metrics: Metrics, clock: _Clock) -> None:
        snapshots = self.method.snapshots(state)
        if snapshots:
            models = {pick: self._model(found) for found in snapshots for pick in found.picks}
            self.directory.snapshots(models, state.round)
        account = self.federation.ledger.current
        seconds = round(clock.seconds, 3)
        self.directory.event(
            {"round": state.round, "metrics": metrics, "ledger": asdict(account), "wall_seconds": seconds}
            | self.federation.engine_events(),
        )
        if self.watcher:
            total = self.federation.ledger.total()
            self.watcher.round_done(state.round, self.rounds, metrics, total, clock.seconds)

    def _finish(self, state: Any, value: dict[str, Any], clock: _Clock, tried: int) -> dict[str, Any]:
        found = self._results(state, value, tried)
        result = {
            "method": self.method.name,
            "status": "finished",
            "seed": self.seed,
            "rounds": state.round,
            "wall_seconds": round(clock.seconds, 3),
            "hypervolume": value["metrics"].get("hypervolume"),
            "candidates": [self._saved(candidate) for candidate in found],
            "ledger": self.federation.ledger.report(),
        }
        self.directory.result(result)
        return result

    def _results(self, state: Any, value: dict[str, Any], tried: int) -> list[Candidate]:
        """The candidates of the method with their final measurements; repeated on failure, as a round is."""
        self.federation.begin(state.round + 1, tried)
        for attempt in range(1, self.patience + 1):
            again = () if attempt == 1 else (attempt,)
            try:
                return self.method.results(state, self.federation, stream(self.seed, "results", *again))
            except TooFewReplies as problem:
                reason = str(problem)
        self._checkpoint(state, value | {"tried": tried + self.patience})  # a resumed run sends the tasks again
        raise Paused(
            f"the search is finished, its networks could not be measured: {reason}", code="results-not-measured"
        )

    def _saved(self, candidate: Candidate) -> dict[str, Any]:
        """The entry of `result.json`, after writing the model file."""
        entry = {
            "id": candidate.id,
            "architecture": candidate.architecture,
            "objectives": dict(candidate.objectives),
            "picks": candidate.picks,
            "weights": self.directory.save_model(self._model(candidate)),
        }
        if candidate.about:
            entry["about"] = dict(candidate.about)
        if candidate.clients:
            entry["clients"] = {name: dict(metrics) for name, metrics in candidate.clients.items()}
        return entry

    def _model(self, candidate: Candidate) -> Model:
        return Model(candidate.architecture, candidate.weights, candidate.statistics, self.schema)


class _Clock:
    """Wall-clock seconds of the run, including those before it was resumed."""

    def __init__(self, before: float) -> None:
        self._start = time.monotonic() - before

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start


class _Cadence:
    """When a checkpoint is due: each round, unless checkpoints would exceed their share of the time."""

    def __init__(self) -> None:
        self._cost = 0.0
        self._last = time.monotonic()

    def due(self) -> bool:
        return time.monotonic() - self._last >= self._cost * CHECKPOINT_SHARE

    def measure(self, write: Callable[[], None]) -> None:
        start = time.monotonic()
        write()
        self._last = time.monotonic()
        self._cost = self._last - start
