"""`[privacy]` from one run to the next: a run on the rows of an earlier one is private, too, and what they spend adds
up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.config import Raw, read_file
from atoll.run.reader import Run

OWN = ("noise", "count_noise")  # decided for the rounds of one run: the next one has others


def carried_privacy(runs: Sequence[Run], same_rows: bool = True) -> Raw:
    """The tables `{"privacy": ...}` of a run that follows these; none if no run had one. It has the budget of the first
    private run for itself, and names what all of them have spent of the `same_rows`."""
    tables = [read_file(run.path / "config.toml").get("privacy") for run in runs]
    private = [(run, table) for run, table in zip(runs, tables, strict=True) if table is not None]
    if not private:
        return {}
    carried = {name: value for name, value in private[0][1].items() if name not in OWN}
    spent = [_spent(run, table) for run, table in private] if same_rows else [(0.0, 0.0)]
    return {
        "privacy": carried | {"earlier_epsilon": sum(e for e, _ in spent), "earlier_delta": sum(d for _, d in spent)}
    }


def _spent(run: Run, table: Mapping[str, Any]) -> tuple[float, float]:
    """Epsilon and delta of a run and of those before it. One that has not finished may spend all of its budget."""
    clients = run.result["privacy"]["clients"] if run.finished else {}
    own = max((one["epsilon"] for one in clients.values()), default=table["epsilon"])
    return own + table["earlier_epsilon"], table["delta"] + table["earlier_delta"]


def each_spends(epsilon: float | None, runs: str) -> list[str]:
    """A line for commands that start several runs on the same rows; none without `[privacy]`."""
    if epsilon is None:
        return []
    return [f"privacy: each of {runs} spends up to epsilon {epsilon:g} of the same rows; they add up"]
