"""Box plots of compared runs: the scores over seeds, and the best runs over clients (the paper's Fig. 2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from atoll.report.comparison import Group


def draw_boxes(groups: Sequence[Group], path: Path) -> None:
    """Left: each group's runs. Right: each group's best run by training psi (else its median run), over clients."""
    figure = Figure(figsize=(4 + 2.4 * len(groups), 4.2), layout="constrained")
    seeds, clients = figure.subplots(1, 2, sharey=False)
    labels = [group.name for group in groups]
    seeds.boxplot([group.scores for group in groups], tick_labels=labels)
    seeds.set_title("all runs: mean over clients")
    clients.boxplot([list(_shown(group)) for group in groups], tick_labels=labels)
    clients.set_title("one run: clients")
    for axes in (seeds, clients):
        axes.set_ylabel("weighted F1 on test rows")
        axes.grid(axis="y", alpha=0.3)
    figure.savefig(path, dpi=130)


def _shown(group: Group) -> list[float]:
    ranked = sorted(group.runs, key=lambda run: run.score)
    chosen = group.best() or ranked[len(ranked) // 2]
    return list(chosen.clients.values())
