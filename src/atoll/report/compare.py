"""Runs of several methods (or settings) side by side: over seeds, by client, and with a significance test.

A group is a folder of runs, as `atoll sweep` writes it, or all single runs of one method. A run's score is the mean
over its clients of the weighted F1 of its main network on the client's own test rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from atoll.errors import RunDirectoryError
from atoll.report.figures.canvas import INK, PALETTE, new_figure, plain, save, tidy
from atoll.run.reader import Run, load


@dataclass(frozen=True)
class ScoredRun:
    """One finished run."""

    run: Run
    clients: dict[str, float]  # weighted F1 of the main network on each client's test rows
    objectives: dict[str, float]
    ledger: dict[str, Any]
    rounds: int

    @property
    def score(self) -> float:
        return float(np.mean(list(self.clients.values())))


@dataclass(frozen=True)
class RunGroup:
    name: str
    runs: list[ScoredRun]

    @property
    def scores(self) -> list[float]:
        return [run.score for run in self.runs]

    def of_client(self, client: str) -> list[float]:
        return [run.clients[client] for run in self.runs if client in run.clients]

    def mean_objective(self, name: str) -> float:
        values = [run.objectives[name] for run in self.runs if name in run.objectives]
        return float(np.mean(values)) if values else math.nan

    def highest(self, name: str) -> float:
        return max((run.objectives[name] for run in self.runs if name in run.objectives), default=math.nan)

    def bytes_per_round(self, way: str) -> float:
        """Bytes of all clients together per round of the search; `way` is up or down."""
        return float(np.mean([run.ledger[f"bytes_{way}"] / run.rounds for run in self.runs]))

    def best(self) -> ScoredRun | None:
        """The run with the highest psi, which is measured on training rows; None if the method does not record it."""
        known = [run for run in self.runs if "psi" in run.objectives]
        return max(known, key=lambda run: run.objectives["psi"]) if known else None


def gather(folders: Sequence[Path]) -> list[RunGroup]:
    """The groups in these folders, in the given order. Runs that are not finished are left out."""
    groups: dict[str, list[ScoredRun]] = {}
    for folder in folders:
        if (folder / "config.toml").is_file():
            run = load(folder)
            groups.setdefault(run.manifest["method"], []).extend(_scored(run))
        else:
            below = sorted((path.parent for path in folder.glob("*/config.toml")), key=_natural_order)
            if not below:
                raise RunDirectoryError(
                    f"{folder}: neither a run directory nor a folder of them; see `atoll sweep`", code="no-runs-found"
                )
            groups.setdefault(folder.name, []).extend(found for path in below for found in _scored(load(path)))
    for name, runs in groups.items():
        if not runs:
            raise RunDirectoryError(
                f"{name}: no finished run has metrics of its clients; see `atoll show`", code="no-finished-run"
            )
    return [RunGroup(name, runs) for name, runs in groups.items()]


def mann_whitney(one: Sequence[float], other: Sequence[float]) -> tuple[float, float]:
    """U of `one` and the two-tailed p-value; NaN if a group has fewer than two values."""
    if min(len(one), len(other)) < 2:
        return math.nan, math.nan
    from scipy.stats import mannwhitneyu

    found = mannwhitneyu(list(one), list(other), alternative="two-sided")
    return float(found.statistic), float(found.pvalue)


def markdown(groups: Sequence[RunGroup]) -> str:
    """Everything as Markdown tables."""
    parts = [_summary(groups), _by_client(groups), _best(groups)]
    if len(groups) > 1:
        parts.append(_tests(groups))
    return "\n".join(part for part in parts if part)


def clients_of(groups: Sequence[RunGroup]) -> list[str]:
    """All clients, in the order of the first run that has them."""
    return list(dict.fromkeys(name for group in groups for run in group.runs for name in run.clients))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(word).replace("|", "\\|") for word in line) + " |" for line in lines) + "\n"


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation (of a sample)."""
    if not values:
        return ""
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return f"{np.mean(values):.4f} ± {deviation:.4f}"


def _summary(groups: Sequence[RunGroup]) -> str:
    columns = ["group", "runs", "weighted F1 on test", "lowest", "highest", "hidden nodes (highest)", "weights"]
    columns += ["up, bytes per round", "down, bytes per round"]
    rows = []
    for group in groups:
        highest = group.highest("hidden")
        hidden = "" if math.isnan(highest) else f"{group.mean_objective('hidden'):.2f} ({highest:.0f})"
        row = [group.name, str(len(group.runs)), spread(group.scores)]
        row += [f"{min(group.scores):.4f}", f"{max(group.scores):.4f}", hidden]
        row += [f"{group.mean_objective('params'):,.1f}"]
        rows.append(row + [f"{group.bytes_per_round(way):,.0f}" for way in ("up", "down")])
    return table(columns, rows)


def _by_client(groups: Sequence[RunGroup]) -> str:
    rows = [[client, *(spread(group.of_client(client)) for group in groups)] for client in clients_of(groups)]
    return table(["client", *(group.name for group in groups)], rows)


def _best(groups: Sequence[RunGroup]) -> str:
    """The best run by training psi: mean and deviation over its clients, as in the paper's Table 5."""
    rows = [
        [group.name, str(best.run.manifest["seed"]), spread(list(best.clients.values()))]
        for group in groups
        if (best := group.best()) is not None
    ]
    return table(["best run by training psi", "seed", "weighted F1 on test, over clients"], rows) if rows else ""


def _tests(groups: Sequence[RunGroup]) -> str:
    rows = []
    for one, other in combinations(groups, 2):
        u, p = mann_whitney(one.scores, other.scores)
        difference = float(np.mean(one.scores) - np.mean(other.scores))
        rows.append([f"{one.name} - {other.name}", f"{difference:+.4f}", f"{u:g}", f"{p:.3g}"])
    return table(["difference", "of means", "Mann-Whitney U", "p, two-tailed"], rows)


def _scored(run: Run) -> list[ScoredRun]:
    if not run.finished or not run.result["candidates"]:
        return []
    result = run.result
    main = next((c for c in result["candidates"] if "high" in c["picks"]), result["candidates"][0])
    clients = {name: float(metrics["test_f1"]) for name, metrics in main.get("clients", {}).items()}
    return [ScoredRun(run, clients, main["objectives"], result["ledger"], result["rounds"])] if clients else []


def _natural_order(path: Path) -> tuple[str, int, str]:
    """seed-2 before seed-10."""
    stem, _, number = path.name.rpartition("-")
    return (stem, int(number), "") if number.isdecimal() else (path.name, 0, "")


def draw_boxes(groups: Sequence[RunGroup], path: Path) -> Path:
    """Left: each group's runs. Right: each group's best run by training psi (else its median run), over clients."""
    figure = new_figure(4 + 2.4 * len(groups), 4.2)
    panels = {
        "all runs: mean over clients": [group.scores for group in groups],
        "one run: clients": [_shown(group) for group in groups],
    }
    labels = [plain(group.name) for group in groups]
    for axes, (title, values) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        boxes = axes.boxplot(values, tick_labels=labels, patch_artist=True, medianprops={"color": INK})
        for number, box in enumerate(boxes["boxes"]):
            box.set(facecolor=PALETTE[number % len(PALETTE)], alpha=0.55, edgecolor=INK)
        axes.set_title(title, fontsize=11, color=INK)
        axes.set_ylabel("weighted F1 on test rows")
        tidy(axes)
        axes.grid(axis="x", visible=False)
    return save(figure, path)


def _shown(group: RunGroup) -> list[float]:
    ranked = sorted(group.runs, key=lambda run: run.score)
    chosen = group.best() or ranked[len(ranked) // 2]
    return list(chosen.clients.values())
