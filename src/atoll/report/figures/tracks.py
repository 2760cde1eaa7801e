"""What the pictures show of a run, read from its directory: its networks of interest round by round, and its front."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from atoll.errors import RunDamaged, RunDirectoryError
from atoll.run.reader import Run

PICKS = ("high", "knee")  # what a search follows round by round
FRONT_PICKS = (*PICKS, "high2", "knee2")  # what a front marks, where the method picks a second of each


@dataclass(frozen=True)
class Track:
    """One network of interest over the rounds. A run that trains a single network has one track, without a pick."""

    pick: str | None
    validation: dict[int, float] = field(default_factory=dict)  # round -> error
    test: dict[int, float] = field(default_factory=dict)  # round -> error, for the rounds in which it was looked at
    macs: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Point:
    """A network of a front."""

    name: str
    error: float
    costs: dict[str, float]
    picks: tuple[str, ...] = ()
    test_error: float | None = None


def settings(run: Run) -> dict[str, Any]:
    """The method's own settings, as the run directory has them."""
    try:
        whole = tomllib.loads((run.path / "config.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise RunDamaged(f"{run.path}: config.toml cannot be read ({problem})", code="config-unreadable") from None
    own = whole.get(run.manifest["method"], {})
    return own if isinstance(own, dict) else {}


def rounds_of(run: Run, phase: str | None = None) -> list[dict[str, Any]]:
    """Round and metrics of every round done (of this phase); an error where there is none to draw."""
    events = [{"round": event["round"], **event["metrics"]} for event in run.rounds]
    if not events:
        raise RunDirectoryError(f"{run.path}: no round is done yet, there is nothing to draw", code="no-round-done")
    return [event for event in events if phase is None or event.get("phase") == phase]


def tracks(run: Run, phase: str | None = None) -> list[Track]:
    """High and Knee of a search, or the one network of a run that trains a single one."""
    events = rounds_of(run, phase)
    if any("networks" in event for event in events):
        return []  # several networks side by side: `report/figures/retraining.py` draws them
    if any("entropy" in event for event in events):
        return []  # errors of training batches under a policy: `report/figures/policy.py` draws them
    if any(isinstance(event.get(pick), Mapping) for event in events for pick in PICKS):
        found = [
            _track(pick, [(e["round"], e[pick]) for e in events if isinstance(e.get(pick), Mapping)]) for pick in PICKS
        ]
        return [track for track in found if track.validation]
    track = _track(None, [(event["round"], event) for event in events])
    macs = fixed_macs(run)
    if macs is not None:
        track.macs.update(dict.fromkeys((event["round"] for event in events), macs))
    return [track] if track.validation or track.test else []


def fixed_macs(run: Run) -> float | None:
    """MACs of the network of a finished run that found a single one."""
    candidates = run.result["candidates"] if run.finished else []
    return candidates[0]["objectives"].get("macs") if len(candidates) == 1 else None


def front(run: Run) -> list[Point]:
    """The front of the last round of the search, from the lowest error on; empty where the method has none."""
    searching = [event for event in rounds_of(run) if "front" in event and event.get("phase") != "final"]
    if not searching:
        return []
    last = searching[-1]
    costs = last.get("objectives", settings(run).get("objectives", ["error", "macs"]))[1:]
    tested = _test_errors(run) if last["round"] == run.rounds[-1]["round"] else {}
    return [
        Point(name, error, dict(zip(costs, values, strict=False)), _picks(last, name), tested.get(name))
        for name, error, *values in last["front"]
    ]


def hypervolume(run: Run) -> dict[int, float]:
    """Round -> hypervolume of the search; the final training of a search that has one is left out."""
    events = [event for event in rounds_of(run) if event.get("phase") != "final"]
    return {event["round"]: event["hypervolume"] for event in events if event.get("hypervolume") is not None}


def _track(pick: str | None, figures: Sequence[tuple[int, Mapping[str, Any]]]) -> Track:
    names = {"validation": "error", "test": "test_error", "macs": "macs"}
    return Track(pick, **{mine: {r: f[theirs] for r, f in figures if theirs in f} for mine, theirs in names.items()})


def _picks(event: Mapping[str, Any], name: str) -> tuple[str, ...]:
    chosen = (pick for pick in FRONT_PICKS if isinstance(event.get(pick), Mapping))
    return tuple(pick for pick in chosen if event[pick].get("key") == name)


def _test_errors(run: Run) -> dict[str, float]:
    """Network -> error on test data, where the run is finished and has such data."""
    candidates = run.result["candidates"] if run.finished else []
    found = {candidate["id"]: candidate["objectives"].get("test_error") for candidate in candidates}
    return {name: error for name, error in found.items() if error is not None}
