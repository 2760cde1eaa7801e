"""Sequences of networks that a search by pruning leaves behind, read from run directories.

A run of `decnas` or `netadapt` has one. A run of `retrain` that tuned pruned networks has one of those, and one of
width multipliers where it trained some beside them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atoll.reading import Run
from atoll.report.tracks import rounds_of, settings

MULTIPLIER = "width:"  # how such networks of a `retrain` run are named


@dataclass(frozen=True)
class Member:
    """One network of a sequence."""

    name: str
    macs: float
    accuracy: float
    tested: bool  # on test data, else on validation data
    architecture: Mapping[str, Any] | None = None  # None while a run goes on


@dataclass(frozen=True)
class Sequence:
    """Networks by falling MACs. `kind`: pruned (as the search left them), tuned (trained on), multipliers."""

    run: str
    kind: str
    members: list[Member]


def prunes(run: Run) -> bool:
    """Whether this run is a search by pruning: its rounds have iterations with candidates."""
    return any("candidates" in event and "iteration" in event for event in rounds_of(run))


def sequences(name: str, run: Run) -> list[Sequence]:
    """The sequences of one run; empty for runs of other methods, and for those that have no network yet."""
    if prunes(run):
        found = [Sequence(name, "pruned", _searched(run))]
    elif _widths(run):
        tuned = _tuned(run)
        pruned = [member for member in tuned if not member.name.startswith(MULTIPLIER)]
        multiplied = [member for member in tuned if member.name.startswith(MULTIPLIER)]
        found = [Sequence(name, "tuned", pruned), Sequence(name, "multipliers", multiplied)]
    else:
        return []
    ordered = [Sequence(one.run, one.kind, sorted(one.members, key=lambda member: -member.macs)) for one in found]
    return [one for one in ordered if one.members]


def _searched(run: Run) -> list[Member]:
    if run.finished:
        return [_member(found["id"], found["objectives"], found["architecture"]) for found in run.result["candidates"]]
    ends = [event for event in rounds_of(run) if "network" in event and "macs" in event.get("resources", {})]
    return [_member(event["network"], {**event, "macs": event["resources"]["macs"]}) for event in ends]


def _tuned(run: Run) -> list[Member]:
    """The last round's figures of networks that were trained side by side."""
    last = rounds_of(run)[-1].get("networks", {})
    found = []
    seen: list[tuple[bool, dict[str, Any]]] = []
    for name, architecture in _widths(run).items():
        kind_of = (name.startswith(MULTIPLIER), architecture)
        if kind_of in seen:  # the same network by two of its names: one point is enough
            continue
        seen.append(kind_of)
        row = last.get(name, {})
        errors = {
            error: 1 - row[accuracy]
            for error, accuracy in (("error", "accuracy"), ("test_error", "test_accuracy"))
            if row.get(accuracy) is not None
        }
        if errors:
            found.append(_member(name, {"error": 1.0, **errors, "macs": _macs(architecture)}, architecture))
    return found


def _member(name: str, figures: Mapping[str, Any], architecture: Mapping[str, Any] | None = None) -> Member:
    tested = "test_error" in figures
    accuracy = 1 - float(figures["test_error" if tested else "error"])
    return Member(name, float(figures["macs"]), accuracy, tested, architecture)


def _widths(run: Run) -> dict[str, dict[str, Any]]:
    """The pruned networks that a `retrain` run was given."""
    given = settings(run).get("networks", {}) if any("networks" in event for event in rounds_of(run)) else {}
    return {name: arch for name, arch in given.items() if isinstance(arch, dict) and arch.get("space") == "widths"}


def _macs(architecture: Mapping[str, Any]) -> int:
    from atoll.spaces import cost

    return cost(architecture).macs
