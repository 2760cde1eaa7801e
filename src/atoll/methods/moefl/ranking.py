"""How `moefl` orders networks by error and connections: limits, selection, front and picks.

Limits are beyond the paper: constraint domination (Deb et al. 2002). So is crowding by logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from atoll.algorithms import nsga2
from atoll.methods.moefl.individuals import Table
from atoll.training.metrics import Objective

MEASURED = {"error": "an error of ", "balanced_error": "a balanced error of ", "weighted_f1": "1 - weighted F1 = "}


class Chosen(NamedTuple):
    """Rows of a table."""

    front: list[int]  # by error
    picks: dict[str, int]


@dataclass(frozen=True)
class Ranking:
    """Limits of error and connections, None: there is none; and how distances on a front are measured."""

    max_error: float | None = None
    max_connections: int | None = None
    crowding: Literal["linear", "log"] = "linear"
    objective: Objective = "error"

    def violations(self, table: Table) -> Table:
        """By how much each row exceeds the limits, in shares of them; 0 within them."""
        found = np.zeros(len(table))
        if self.max_error is not None:
            found += np.maximum(0, table[:, 0] / self.max_error - 1)
        if self.max_connections is not None:
            found += np.maximum(0, table[:, 1] / self.max_connections - 1)
        return found

    def exceeded(self, error: float, connections: float) -> dict[str, str]:
        """In words, what a network that is handed over has beyond the limits; empty within them."""
        over = []
        if self.max_error is not None and error > self.max_error:
            over.append(f"{MEASURED[self.objective]}{error:.4f}, and max_error = {self.max_error:g}")
        if self.max_connections is not None and connections > self.max_connections:
            over.append(f"{connections:,.0f} connections, and max_connections = {self.max_connections:,}")
        return {"exceeds": "; ".join(over)} if over else {}

    def spacing(self, table: Table) -> Table:
        """The values by which crowding is measured."""
        if self.crowding == "linear":
            return table
        return np.stack([table[:, 0], np.log10(np.maximum(table[:, 1], 1))], axis=1)

    def rank_and_crowding(self, table: Table) -> tuple[nsga2.Indices, nsga2.Floats]:
        return nsga2.rank_and_crowding(table, self.violations(table), self.spacing(table))

    def select(self, table: Table, count: int) -> list[int]:
        """At most this many rows, the best first."""
        rows = nsga2.select(table, min(count, len(table)), self.violations(table), self.spacing(table))
        return [int(row) for row in rows]

    def hypervolume(self, table: Table, reference: Sequence[float]) -> float:
        """Of the networks within the limits."""
        within = table[self.violations(table) <= 0]
        return nsga2.hypervolume(within, reference) if len(within) else 0.0

    def searched(self, table: Table) -> Chosen:
        """The first front within the limits; without such a network, the one that exceeds them least."""
        violations = self.violations(table)
        within = np.flatnonzero(violations <= 0)
        front = within[nsga2.by_error(table[within])].tolist() if len(within) else [int(violations.argmin())]
        return Chosen(front, _picks(front, [front[i] for i in nsga2.knees(table[front])]))

    def finished(self, table: Table) -> Chosen:
        """All networks that were trained further, whether they exceed the limits or not."""
        _, knee = nsga2.finished(table)
        front = sorted(range(len(table)), key=lambda i: (*table[i],))
        return Chosen(front, _picks(front, [knee, *(front[i] for i in nsga2.knees(table[front]) if front[i] != knee)]))


def _picks(front: Sequence[int], knees: Sequence[int]) -> dict[str, int]:
    """Two networks of low error and two at the knee; where the front is too short, the last one there is."""
    places = {"high": front[0], "high1": front[0], "high2": front[min(1, len(front) - 1)]}
    knees = knees or front[:1]
    return places | {"knee": knees[0], "knee1": knees[0], "knee2": knees[min(1, len(knees) - 1)]}
