"""`[privacy]` from one run to the next: a run on the rows of an earlier one is private, too, and what they spend adds
up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.config import Raw, read_file
from atoll.run.reader import Run

OWN = ("noise", "count_noise")  # decided for the rounds of one run: the next one has others


def carried_privacy(runs: Sequence[Run], data: Mapping[str, Any] | None = None) -> Raw:
    """The tables `{"privacy": ...}` of a run that follows these on this data (None: theirs); none if no run had one.
    It has the whole budget of the first private run for itself, and names what all of them have spent on the same
    rows."""
    found = [(run, read_file(run.path / "config.toml")) for run in runs]
    private = [(run, tables) for run, tables in found if "privacy" in tables]
    if not private:
        return {}
    same = [(run, tables) for run, tables in private if data is None or same_rows(tables["data"], data)]
    own = private[0][1]
    left_out = OWN if own in [tables for _, tables in same] else (*OWN, "bounds")  # of other columns
    carried = {name: value for name, value in own["privacy"].items() if name not in left_out}
    spent = [_spent(run, tables["privacy"]) for run, tables in same]
    return {
        "privacy": carried | {"earlier_epsilon": sum(e for e, _ in spent), "earlier_delta": sum(d for _, d in spent)}
    }


def same_rows(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether two data tables may name the same rows: one data set, or one folder that is in the other. Whatever part
    of the rows they use, some of them may be the same. Of data in memory or at sites nothing else is known."""
    if one.get("folder") is None or other.get("folder") is None:
        return one.get("name") is not None and one.get("name") == other.get("name")
    first, second = (Path(table["folder"]).resolve() for table in (one, other))
    return first.is_relative_to(second) or second.is_relative_to(first)


def _spent(run: Run, table: Mapping[str, Any]) -> tuple[float, float]:
    """Epsilon and delta of a run and of those before it. One that has not finished may spend all of its budget."""
    clients = run.result["privacy"]["clients"] if run.finished else {}
    own = max((one["epsilon"] for one in clients.values()), default=table["epsilon"])
    return own + table["earlier_epsilon"], table["delta"] + table["earlier_delta"]


def each_spends(epsilon: float | None, runs: str) -> list[str]:
    """A line for commands that start several runs on the same rows; none without `[privacy]`."""
    if epsilon is None:
        return []
    return [f"privacy: each of {runs} spends up to epsilon {epsilon:g} on the same rows; they add up"]
