"""What figures show of a run, read from its directory: its models of interest round by round, and its front.

Which metrics there are follows from the kind that the run's method declared, see `atoll.run.metrics`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from atoll.errors import RunDirectoryError
from atoll.run.metrics import measured_on
from atoll.run.reader import Run

PICKS = ("high", "knee")  # followed round by round
FRONT_PICKS = (*PICKS, "high2", "knee2")  # marked in a front, where the method picks a second of each
ONE_MODEL = ("model", "pruning")  # kinds of metrics whose error is that of one model


@dataclass(frozen=True)
class Track:
    """One model of interest over the rounds. A run that trains a single model has one track, without a pick."""

    pick: str | None
    validation: dict[int, float] = field(default_factory=dict)  # round -> error
    test: dict[int, float] = field(default_factory=dict)  # round -> error, for the rounds with a test evaluation
    macs: dict[int, float] = field(default_factory=dict)
    rows: str = "validation rows"  # that the errors called `validation` are about


@dataclass(frozen=True)
class FrontPoint:
    """A network of a front."""

    name: str
    error: float
    costs: dict[str, float]
    picks: tuple[str, ...] = ()
    test_error: float | None = None


def settings(run: Run) -> dict[str, Any]:
    """The method's own settings, from the run's config.toml."""
    own = run.config.get(run.manifest["method"], {})
    return own if isinstance(own, dict) else {}


def rounds_of(run: Run, phase: str | None = None) -> list[dict[str, Any]]:
    """Round and metrics of every completed round (of this phase); an error if the run has no completed round."""
    events = [{"round": event["round"], **event["metrics"]} for event in run.rounds]
    if not events:
        raise RunDirectoryError(f"{run.path}: no round is done yet, there is nothing to draw", code="no-round-done")
    return [event for event in events if phase is None or event.get("phase") == phase]


def tracks(run: Run, phase: str | None = None) -> list[Track]:
    """High and Knee of a search with a front, or the one model of a run that trains a single one; else none."""
    events = rounds_of(run, phase)
    if run.metrics_kind == "front":
        found = [
            _track(run, pick, [(event["round"], event[pick]) for event in events if pick in event]) for pick in PICKS
        ]
        return [track for track in found if track.validation]
    # Before its final phase a search by a policy has errors of training batches, which are not comparable.
    if run.metrics_kind not in ONE_MODEL and not (run.metrics_kind == "policy" and phase == "final"):
        return []
    track = _track(run, None, [(event["round"], event) for event in events])
    macs = fixed_macs(run)
    if macs is not None:
        track.macs.update(dict.fromkeys((event["round"] for event in events), macs))
    return [track] if track.validation or track.test else []


def fixed_macs(run: Run) -> float | None:
    """MACs of the network of a finished run that found a single one."""
    candidates = run.result["candidates"] if run.finished else []
    return candidates[0]["objectives"].get("macs") if len(candidates) == 1 else None


def architectures(run: Run, picks: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Pick -> architecture, from the result, or from the snapshots of a run that is not finished."""
    if run.finished:
        candidates = run.result["candidates"]
        return {pick: found["architecture"] for pick in picks for found in candidates if pick in found["picks"]}
    found: dict[str, dict[str, Any]] = {}
    for pick in picks:
        with suppress(RunDirectoryError):  # no snapshot yet, or none of this name
            found[pick] = run.load_model(pick).architecture
    return found


def front(run: Run) -> list[FrontPoint]:
    """The front after the last round of the search, by rising error; empty if the method has none."""
    searching = [event for event in _search_rounds(run) if "front" in event]
    if not searching:
        return []
    last = searching[-1]
    costs = last.get("objectives", settings(run).get("objectives", ["error", "macs"]))[1:]
    tested = _test_errors(run) if last["round"] == run.rounds[-1]["round"] else {}
    return [
        FrontPoint(name, error, dict(zip(costs, values, strict=False)), _picks(last, name), tested.get(name))
        for name, error, *values in last["front"]
    ]


def hypervolume(run: Run) -> dict[int, float]:
    """Round -> hypervolume of the search, without the final training of a search that has one."""
    return {
        event["round"]: event["hypervolume"] for event in _search_rounds(run) if event.get("hypervolume") is not None
    }


def _search_rounds(run: Run) -> list[dict[str, Any]]:
    """The rounds of a search that has a front, without the training that follows it."""
    if run.metrics_kind != "front":
        return []
    return [event for event in rounds_of(run) if event.get("phase") != "final"]


def _track(run: Run, pick: str | None, rounds: Sequence[tuple[int, Mapping[str, Any]]]) -> Track:
    validation, test, macs = (
        {number: row[key] for number, row in rounds if key in row} for key in ("error", "test_error", "macs")
    )
    return Track(pick, validation, test, macs, measured_on(run.manifest))


def _picks(event: Mapping[str, Any], name: str) -> tuple[str, ...]:
    return tuple(pick for pick in FRONT_PICKS if pick in event and event[pick].get("key") == name)


def _test_errors(run: Run) -> dict[str, float]:
    """Network -> error on test rows, if the run is finished and measured it."""
    candidates = run.result["candidates"] if run.finished else []
    found = {candidate["id"]: candidate["objectives"].get("test_error") for candidate in candidates}
    return {name: error for name, error in found.items() if error is not None}
