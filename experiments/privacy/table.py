"""One table of finished runs: what privacy costs each method in test error, and which method is best at each epsilon.

    python experiments/privacy/table.py RUN...

A row per method and budget, over the seeds: the test error of the recommended network as mean and standard deviation
(n - 1), and the largest epsilon that any client has spent. Methods are compared at the same budget only. Where two
means are closer than the larger of their deviations, or a method has one seed only, the line says so. Runs that are
not finished are named and left out.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from atoll.errors import AtollError
from atoll.run.reader import Run, load

NONE = math.inf  # the epsilon of a run without [privacy]


class Outcome(NamedTuple):
    """What one run found."""

    method: str
    epsilon: float  # the budget
    seed: int
    error: float  # on the test rows, of the recommended network
    spent: float | None = None  # the largest of all clients


def outcome(run: Run) -> Outcome:
    result = run.result
    method, seed = str(run.manifest["method"]), int(result["seed"])
    error = float(run.candidate(run.recommended)["test"]["test_error"])
    privacy = result.get("privacy")
    if privacy is None:
        return Outcome(method, NONE, seed, error)
    spent = max(own["epsilon"] for own in privacy["clients"].values())
    return Outcome(method, float(privacy["epsilon"]), seed, error, spent)


class Row(NamedTuple):
    """All seeds of one method and budget."""

    method: str
    epsilon: float
    seeds: list[int]
    mean: float
    deviation: float | None  # of one seed there is none
    spent: float | None


def rows(outcomes: Iterable[Outcome]) -> list[Row]:
    """By budget, the weakest promise first, then by error."""
    groups: dict[tuple[str, float], list[Outcome]] = {}
    for one in sorted(outcomes):
        groups.setdefault((one.method, one.epsilon), []).append(one)
    found = []
    for (method, epsilon), own in groups.items():
        errors, spent = [one.error for one in own], [one.spent for one in own if one.spent is not None]
        deviation = statistics.stdev(errors) if len(errors) > 1 else None
        seeds = [one.seed for one in own]
        if len(set(seeds)) < len(seeds):
            sys.exit(f"{method}, epsilon {budget(epsilon)}: two runs of one seed, among {seeds}; name one of them")
        found.append(Row(method, epsilon, seeds, statistics.mean(errors), deviation, max(spent, default=None)))
    return sorted(found, key=lambda row: (-row.epsilon, row.mean))


def table(found: Sequence[Row]) -> list[str]:
    lines = ["| epsilon | method | seeds | test error, mean | deviation | epsilon spent |", "|---|---|---|---|---|---|"]
    for row in found:
        deviation = "-" if row.deviation is None else f"{100 * row.deviation:.2f} %"
        spent = "-" if row.spent is None else f"{row.spent:.2f}"
        cells = (budget(row.epsilon), row.method, len(row.seeds), f"{100 * row.mean:.2f} %", deviation, spent)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def winners(found: Sequence[Row]) -> list[str]:
    """The best method at each budget, and how far the next one is behind."""
    lines = []
    for epsilon in dict.fromkeys(row.epsilon for row in found):
        own = [row for row in found if row.epsilon == epsilon]
        if len(own) < 2:
            lines.append(f"epsilon {budget(epsilon)}: only {own[0].method} was run")
            continue
        best, next_one = own[:2]
        behind = next_one.mean - best.mean
        text = f"epsilon {budget(epsilon)}: {best.method} wins, {next_one.method} is {100 * behind:.2f} points behind"
        if best.deviation is None or next_one.deviation is None:
            text += "; one seed of a method is no basis for a difference"
        elif behind < max(best.deviation, next_one.deviation):
            text += ", which is less than the deviation between seeds"
        lines.append(text)
    return lines


def budget(epsilon: float) -> str:
    return "none" if epsilon == NONE else f"{epsilon:g}"


def main(names: Sequence[str]) -> None:
    try:
        runs = [load(Path(name)) for name in names]
    except AtollError as problem:
        sys.exit(str(problem))
    for run in runs:
        if not run.finished:
            print(f"{run.path}: not finished, left out", file=sys.stderr)
    found = rows(outcome(run) for run in runs if run.finished)
    print("\n".join([*table(found), "", *winners(found)]))


if __name__ == "__main__":
    main(sys.argv[1:])
