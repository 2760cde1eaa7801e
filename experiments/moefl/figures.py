"""Pictures and tables of `README.md`, from finished runs.

    python experiments/moefl/figures.py search=runs/search "IID=runs/iid" "non-IID=runs/shards"

Runs of `moefl` give `NAME_front.png` and `NAME_hypervolume.png`, runs of `retrain` together `retraining.png`; all are
written beside this file, and the tables are printed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from atoll import load
from atoll.report.figures.front import draw_front
from atoll.report.figures.retraining import curves, draw_retraining, networks_of, validation_table
from atoll.report.figures.rounds import draw_hypervolume
from atoll.report.figures.tracks import hypervolume
from atoll.run.reader import Run

HERE = Path(__file__).parent
ROUNDS = (10, 20, 50, 100)


def accuracy_by_round(runs: dict[str, Run]) -> str:
    """Markdown: accuracy on test data after some rounds, and bytes that a client sends in the last one."""
    columns = ["run", "network", *(f"round {number}" for number in ROUNDS), "last round", "connections"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for label, run in runs.items():
        connections = curves(run, "connections")
        for name, curve in curves(run, "test_accuracy").items():
            last = max(curve)
            cells = [label, name, *(f"{curve[number]:.2%}" if number in curve else "" for number in ROUNDS)]
            cells += [f"{curve[last]:.2%} ({last})", f"{connections[name][last]:,.0f}"]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def volumes(runs: dict[str, Run]) -> str:
    """The hypervolume after every generation, in one line a run."""
    return "\n".join(
        f"{label}: {' '.join(f'{value:.4f}' for value in hypervolume(run).values())}" for label, run in runs.items()
    )


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    named = dict(argument.split("=", 1) for argument in sys.argv[1:])
    runs = {label: load(folder) for label, folder in named.items()}
    retrained = {label: run for label, run in runs.items() if networks_of(run)}
    searches = {label: run for label, run in runs.items() if label not in retrained}
    for label, run in searches.items():
        draw_front({label: run}, HERE / f"{label}_front.png")
        draw_hypervolume({label: run}, HERE / f"{label}_hypervolume.png")
    if searches:
        print(volumes(searches))
    if retrained:
        draw_retraining(retrained, HERE / "retraining.png")
        print(validation_table(retrained))
        print(accuracy_by_round(retrained))


if __name__ == "__main__":
    main()
