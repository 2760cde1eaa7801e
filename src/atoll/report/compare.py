"""Runs of several methods (or settings) side by side: over seeds, by client, and with a significance test.

A group is a folder of runs, as `atoll sweep` writes it, or all single runs of one method. A run's score is the mean
over its clients of the weighted F1 of its main network on the client's own test rows.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from atoll.errors import RunDirectoryError
from atoll.report.figures.canvas import INK, PALETTE, new_figure, plain, save, tidy
from atoll.run.accounts import account_of
from atoll.run.reader import Run, load
from atoll.run.sweep import runs_in


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
            groups.setdefault(folder.name, []).extend(found for run in runs_in(folder) for found in _scored(run))
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


class Section(NamedTuple):
    """One table of a comparison, in plain text."""

    columns: list[str]
    rows: list[list[str]]

    def markdown(self) -> str:
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "\n".join("| " + " | ".join(word.replace("|", "\\|") for word in line) + " |" for line in lines) + "\n"


def sections(groups: Sequence[RunGroup]) -> list[Section]:
    """The whole comparison: the groups, their clients, their best runs and the tests between them."""
    return [part for part in (_summary(groups), _by_client(groups), _best(groups), _tests(groups)) if part.rows]


def notes(groups: Sequence[RunGroup]) -> list[str]:
    """What the tables do not show, one sentence each."""
    found = []
    for group in groups:
        absent: Counter[str] = Counter()
        for one in group.runs:
            accounts = one.run.result.get("clients", {})
            absent.update(name for name, own in accounts.items() if account_of(own).useless)
        found += [
            f"client {name!r} never took part in {count} of {len(group.runs)} runs of {group.name!r}"
            for name, count in absent.items()
        ]
    if len(groups) > 1 and any(len(group.runs) < 2 for group in groups):
        found.append("a test of two groups needs two runs or more of each")
    return found


def markdown(groups: Sequence[RunGroup]) -> str:
    """Everything as Markdown tables."""
    lines = [f"{text}\n" for text in notes(groups)]
    return "\n".join([part.markdown() for part in sections(groups)] + lines)


def clients_of(groups: Sequence[RunGroup]) -> list[str]:
    """All clients, in the order of the first run that has them."""
    return list(dict.fromkeys(name for group in groups for run in group.runs for name in run.clients))


def spread(values: Sequence[float]) -> str:
    """Mean and standard deviation (of a sample); of a single value the value alone."""
    if not values:
        return ""
    deviation = f" ± {np.std(values, ddof=1):.4f}" if len(values) > 1 else ""
    return f"{np.mean(values):.4f}{deviation}"


def _summary(groups: Sequence[RunGroup]) -> Section:
    columns = ["group", "runs", "weighted F1 on test", "lowest", "highest", "hidden nodes (highest)", "weights"]
    columns += ["up, bytes per round", "down, bytes per round"]
    rows = []
    for group in groups:
        highest, weights = group.highest("hidden"), group.mean_objective("params")
        hidden = "" if math.isnan(highest) else f"{group.mean_objective('hidden'):.2f} ({highest:.0f})"
        row = [group.name, str(len(group.runs)), spread(group.scores)]
        row += [f"{min(group.scores):.4f}", f"{max(group.scores):.4f}", hidden]
        row += ["" if math.isnan(weights) else f"{weights:,.1f}"]
        rows.append(row + [f"{group.bytes_per_round(way):,.0f}" for way in ("up", "down")])
    return Section(columns, rows)


def _by_client(groups: Sequence[RunGroup]) -> Section:
    rows = [[client, *(spread(group.of_client(client)) for group in groups)] for client in clients_of(groups)]
    return Section(["client", *(group.name for group in groups)], rows)


def _best(groups: Sequence[RunGroup]) -> Section:
    """The best run by training psi: mean and deviation over its clients, as in the paper's Table 5."""
    rows = [
        [group.name, str(best.run.manifest["seed"]), spread(list(best.clients.values()))]
        for group in groups
        if (best := group.best()) is not None
    ]
    return Section(["best run by training psi", "seed", "weighted F1 on test, over clients"], rows)


def _tests(groups: Sequence[RunGroup]) -> Section:
    """Pairs of groups with two runs or more each."""
    rows = []
    for one, other in combinations((group for group in groups if len(group.runs) > 1), 2):
        u, p = mann_whitney(one.scores, other.scores)
        difference = float(np.mean(one.scores) - np.mean(other.scores))
        rows.append([f"{one.name} - {other.name}", f"{difference:+.4f}", f"{u:g}", f"{p:.3g}"])
    return Section(["difference", "of means", "Mann-Whitney U", "p, two-tailed"], rows)


def _scored(run: Run) -> list[ScoredRun]:
    if not run.finished or not run.result["candidates"]:
        return []
    result = run.result
    main = next((c for c in result["candidates"] if "high" in c["picks"]), result["candidates"][0])
    clients = {name: float(metrics["test_f1"]) for name, metrics in main.get("clients", {}).items()}
    return [ScoredRun(run, clients, main["objectives"], result["ledger"], result["rounds"])] if clients else []


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
