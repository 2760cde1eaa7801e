"""The loop of every run: it calls `step`, appends an event and writes a checkpoint, whatever the method."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from atoll.clients import Finished, evaluate_finished
from atoll.core import wire
from atoll.core.checks import is_finite
from atoll.core.ledger import Account, ClientAccount
from atoll.core.stopping import Progress, StopSettings, reason_to_stop
from atoll.errors import NotResumable, Paused, RunDamaged, TooFewReplies
from atoll.federation.base import Federation
from atoll.methods.base import Candidate, Method, Metrics
from atoll.preparation.value import Preparation
from atoll.rng import stream
from atoll.store import Model, RunDirectory
from atoll.training.metrics import result_metrics

NOT_SHOWN = ("label_noise", "moment_noise", "bounds", "protects", "least_clients")  # of `[privacy]`, in results
CHECKPOINT_SHARE = 20  # checkpoints may take 1/20 of the time


class Watcher(Protocol):
    """An observer of the run, such as a progress bar or a log. It is called between rounds, never during one.

    An exception that it raises ends the run, which can be resumed. It may also have `client_set_aside(number, client,
    reason)`: in round `number` a client was set aside for the rest of the run; and `noted(lines)`: what there is to
    know before the first round, such as what the run will spend of its privacy budget.
    """

    def round_done(self, number: int, rounds: int, metrics: Metrics, total: Account, seconds: float) -> None:
        """Round `number` of `rounds` is done, with these metrics of its method (most have an `error`).

        `total` is what the run has cost so far, `seconds` how long it has taken on this machine.
        """

    def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
        """Too few clients replied in round `number`; after `patience` attempts the run pauses."""


def report_set_aside(watcher: Watcher | None, number: int, clients: Mapping[str, str]) -> None:
    """Tell a watcher of the clients that were set aside in a round, if it wants to know."""
    report = getattr(watcher, "client_set_aside", None)
    if report is not None:
        for client, reason in clients.items():
            report(number, client, reason)


def report_notes(watcher: Watcher | None, lines: Sequence[str]) -> None:
    """Tell a watcher what there is to know before the first round, if it wants to know."""
    report = getattr(watcher, "noted", None)
    if report is not None and lines:
        report(lines)


class _BudgetsSpent(Exception):
    """No client may train any more under `[privacy]`: the run ends with what it has."""


@dataclass
class Loop:
    """One run: a method, its federation, and its run directory."""

    method: Method[Any]
    preparation_of: Callable[[str | None], Preparation]  # for a client's own network, or for one that serves all
    seed: int
    rounds: int
    patience: int
    federation: Federation
    directory: RunDirectory
    watcher: Watcher | None = None
    stop: Callable[[], bool] = lambda: False
    rules: StopSettings = field(default_factory=StopSettings)

    def run(self) -> dict[str, Any]:
        """Run from the last checkpoint, or from the start, to the result, and write that to the directory."""
        saved = self.directory.last_checkpoint()
        tried = saved.get("tried", 0) if saved is not None else 0
        state, before = self._restore(saved) if saved is not None else self._begin()
        clock = _Clock(before)
        metrics = saved["metrics"] if saved is not None else {}
        progress = Progress(**saved["progress"]) if saved is not None else Progress()
        checkpoint = _Cadence()
        spent = None
        while True:
            state, progress = self._within(state, progress)
            if self.method.done(state) or self._reason_to_stop(state, metrics, progress, clock) is not None:
                break
            # What a pause saves: a failed round must leave no trace.
            value = self._value(state, metrics, progress, clock.seconds, tried)
            if self.stop():
                self._checkpoint(state, value)
                raise Paused(f"stopped after round {state.round} of {self.rounds}", code="run-stopped")
            if checkpoint.due():
                checkpoint.measure(partial(self._checkpoint, state, value))
            try:
                state, metrics = self._round(state, value, clock, tried)
            except _BudgetsSpent as problem:
                spent = str(problem)
                if state.round == 0:
                    raise Paused(
                        f"{spent}: there is no network; start again in another folder, with more noise or a larger "
                        "epsilon",
                        resumable=False,
                        code="privacy-budget-spent",
                    ) from None
                self.federation.ledger.restore(value["ledger"])  # nothing was sent in this round
                break
            progress = progress.after(metrics)
            tried = 0
        value = self._value(state, metrics, progress, clock.seconds, tried)
        self._checkpoint(state, value)
        stopped = self._stopped(state, metrics, progress, clock) or spent
        return self._finish(state, value, clock, tried, stopped)

    def _within(self, state: Any, progress: Progress) -> tuple[Any, Progress]:
        """With `stop.macs`, a search that may not take another round ends with a closing phase that fits."""
        if self.rules.macs is None or state.round == 0:
            return state, progress
        left = self.rules.macs - self.federation.ledger.total().client_macs
        new = self.method.within(state, self.federation, left)
        return (state, progress) if new is state else (new, replace(progress, cut=state.round))

    def _stopped(self, state: Any, metrics: Metrics, progress: Progress, clock: _Clock) -> str | None:
        """The rule of `[stop]` that ended the run before its last round."""
        if not self.method.done(state):
            return self._reason_to_stop(state, metrics, progress, clock)
        if state.round < self.rounds and progress.cut:
            return f"stop.macs = {self.rules.macs:,}: more than {progress.cut} rounds of the search did not fit"
        return None

    def _reason_to_stop(self, state: Any, metrics: Metrics, progress: Progress, clock: _Clock) -> str | None:
        if state.round == 0:
            return None
        total = self.federation.ledger.total()
        return reason_to_stop(self.rules, state.round, metrics, progress, total, clock.seconds)

    def _begin(self) -> tuple[Any, float]:
        return self.method.init(self.federation, stream(self.seed, "init")), 0.0

    def _restore(self, saved: Mapping[str, Any]) -> tuple[Any, float]:
        self.federation.restore(saved["federation"])
        self.federation.ledger.restore(saved["ledger"], self._accounts(saved["state"]["round"]))
        return self.method.State(**saved["state"]), saved["wall_seconds"]

    def _accounts(self, number: int) -> list[dict[str, Any]]:
        """What each of the rounds so far has cost, from the event log: checkpoints do not repeat it."""
        found = [event["ledger"] for event in self.directory.events() if "ledger" in event]
        if len(found) != number:
            raise RunDamaged(
                f"{self.directory.path}: events.jsonl has {len(found)} rounds, its checkpoint {number}; restore it "
                "from a copy, or start the run again from scratch",
                code="file-damaged",
            )
        return found

    def _value(self, state: Any, metrics: Metrics, progress: Progress, seconds: float, tried: int) -> dict[str, Any]:
        return {
            "state": {item.name: getattr(state, item.name) for item in fields(state)},
            "federation": self.federation.snapshot(),
            "ledger": self.federation.ledger.without_rounds(state.round),
            "metrics": metrics,
            "progress": asdict(progress),
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
                new, metrics = self.method.step(state, self.federation, rng)
                self._refuse_nonfinite(new)
            except TooFewReplies as problem:
                reason, resumable = str(problem), not isinstance(problem, NotResumable)
                self.directory.event(
                    {"round": number, "failed": reason, "attempt": attempt, "clients": self._clients_this_round()}
                    | self._newly_set_aside(number)
                    | self.federation.unchanged.events()
                )
                if self.watcher:
                    self.watcher.round_failed(number, reason, attempt, self.patience)
                guard = self.federation.guard
                if guard is not None and guard.account.all_spent():
                    raise _BudgetsSpent(
                        f"every client has spent its privacy budget after round {state.round} of {self.rounds}"
                    ) from None
                continue
            self._after_round(new, metrics, clock)
            return new, metrics
        self._checkpoint(state, value | {"tried": tried + self.patience})
        raise Paused(f"round {number} failed {self.patience} times in a row: {reason}", resumable, code="round-failed")

    def _refuse_nonfinite(self, state: Any) -> None:
        """A step that led out of the finite numbers has not happened: weights in a checkpoint are always finite.

        Arrays inside of tables are a method's own notes, such as the best fitness so far, minus infinity at first.
        """
        for item in fields(state):
            value = getattr(state, item.name)
            arrays = [owner[name] for owner, name in wire.take_apart(value).tensors]
            if not all(map(is_finite, [*arrays, value] if isinstance(value, np.ndarray) else arrays)):
                largest = self.federation.largest_updates()
                named = ", ".join(f"{client!r} {size:.3g}" for client, size in largest.items())
                raise TooFewReplies(
                    f"the server's step gave values that are not finite in {item.name!r}"
                    + (f"; the largest updates came from {named}" if named else "")
                    + "; a lower learning rate may help",
                    code="step-not-finite",
                )

    def _after_round(self, state: Any, metrics: Metrics, clock: _Clock) -> None:
        snapshots = self.method.snapshots(state)
        if snapshots:
            models = {pick: self._model(found) for found in snapshots for pick in found.picks}
            self.directory.snapshots(models, state.round)
        account, guard = self.federation.ledger.current, self.federation.guard
        seconds = round(clock.seconds, 3)
        self.directory.event(
            {"round": state.round, "metrics": metrics, "ledger": asdict(account), "wall_seconds": seconds}
            | {"clients": self._clients_this_round()}
            | self._newly_set_aside(state.round)
            | self.federation.unchanged.events()
            | ({} if guard is None else {"epsilon": guard.account.after_round()})
            | self.federation.engine_events(),
        )
        if self.watcher:
            total = self.federation.ledger.total()
            self.watcher.round_done(state.round, self.rounds, metrics, total, clock.seconds)

    def _newly_set_aside(self, number: int) -> dict[str, Any]:
        """For the event; the watcher gets it, too."""
        found = self.federation.newly_set_aside()
        report_set_aside(self.watcher, number, found)
        return {"set_aside": found} if found else {}

    def _finish(
        self, state: Any, value: dict[str, Any], clock: _Clock, tried: int, stopped: str | None
    ) -> dict[str, Any]:
        # Before the final measurements: a client that only takes part in those has contributed nothing to the search.
        accounts = {info.name: self._account(info.name, state.round) for info in self.federation.clients()}
        found = self._results(state, value, tried)
        finished = [Finished(one.architecture, one.weights, one.statistics, one.owner) for one in found if one.picks]
        tested = dict(zip((one.id for one in found if one.picks), self._tested(finished), strict=True))
        ledger = self.federation.ledger
        private = self._privacy(accounts)
        result = {
            "method": self.method.name,
            "status": "finished",
            "stopped": stopped,
            "seed": self.seed,
            "rounds": state.round,
            "planned_rounds": self.rounds,
            "wall_seconds": round(clock.seconds, 3),
            "hypervolume": value["metrics"].get("hypervolume"),
            "candidates": [self._saved(candidate) | tested.get(candidate.id, {}) for candidate in found],
            "ledger": ledger.report(),
            "clients": accounts,
        } | private
        self.directory.result(result)
        return result

    def _privacy(self, accounts: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """What each client has spent, also in its account; nothing without `[privacy]`."""
        guard = self.federation.guard
        if guard is None:
            return {}
        clients = guard.account.report()
        for name, own in clients.items():
            accounts[name] |= {"epsilon": own["epsilon"], "delta": own["delta"]}
        settings = guard.account.settings.model_dump(exclude=set(NOT_SHOWN))
        return {"privacy": {**settings, "clients": clients, "not_covered": list(guard.not_covered)}}

    def _results(self, state: Any, value: dict[str, Any], tried: int) -> list[Candidate]:
        """The candidates of the method with their final measurements; repeated on failure, as a round is."""
        self.federation.wait_for_all()
        self.federation.begin(state.round + 1, tried)
        for attempt in range(1, self.patience + 1):
            again = () if attempt == 1 else (attempt,)
            try:
                return self.method.results(state, self.federation, stream(self.seed, "results", *again))
            except TooFewReplies as problem:
                reason = str(problem)
        self._checkpoint(state, value | {"tried": tried + self.patience})  # a resumed run sends the tasks again
        guard = self.federation.guard
        raise Paused(
            f"the search is finished, its networks could not be measured: {reason}",
            resumable=guard is None or not guard.account.all_spent(),
            code="results-not-measured",
        )

    def _tested(self, networks: Sequence[Finished]) -> list[dict[str, Any]]:
        """The networks as they are handed over, on test rows: in all, client by client, and on clients held out."""
        names = {
            "clients": [info.name for info in self.federation.clients()],
            "test": [info.name for info in self.federation.test_holders() or self.federation.clients()],
            "held_out": [info.name for info in self.federation.held_out()],
        }
        found = []
        for own in evaluate_finished(self.federation, networks):
            each = {name: result_metrics(confusion) for name, confusion in own.items()}
            entry: dict[str, Any] = {"clients": {name: each[name] for name in names["clients"] if name in each}}
            for part in ("test", "held_out"):
                held = [own[name] for name in names[part] if name in own]
                if held:
                    entry[part] = result_metrics(sum(held[1:], held[0]))
            if "held_out" in entry:
                entry["held_out"]["clients"] = {name: each[name] for name in names["held_out"] if name in each}
            found.append(entry)
        return found

    def _clients_this_round(self) -> dict[str, Any]:
        return {name: own.to_plain() for name, own in self.federation.ledger.this_round.items()}

    def _account(self, client: str, rounds: int) -> dict[str, Any]:
        """What became of a client's tasks over the rounds of the search."""
        return self.federation.ledger.clients.get(client, ClientAccount()).report(rounds)

    def _saved(self, candidate: Candidate) -> dict[str, Any]:
        """The entry of `result.json`, after writing the model file."""
        entry = {
            "id": candidate.id,
            "architecture": candidate.architecture,
            "objectives": dict(candidate.objectives),
            "picks": candidate.picks,
            "weights": self.directory.save_model(self._model(candidate)),
        }
        if candidate.owner is not None:
            entry["owner"] = candidate.owner
        if candidate.about:
            entry["about"] = dict(candidate.about)
        return entry

    def _model(self, candidate: Candidate) -> Model:
        preparation = self.preparation_of(candidate.owner)
        return Model(candidate.architecture, candidate.weights, candidate.statistics, preparation)


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
