"""A search by a policy or by alphas: training accuracy (the reinforcement paper's Fig. 3 to 6, 8 and 12), the entropy
of the policy, and the share of skip connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from atoll.errors import ConfigError
from atoll.report.figures import Figure
from atoll.report.figures.canvas import FAINT, PALETTE, new_figure, plain, save, tidy, whole_rounds
from atoll.report.figures.titles import entitle, repetitions
from atoll.report.figures.tracks import rounds_of
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CHANCE = 1 / 8  # probability of a skip connection before training


def policy_rounds(run: Run) -> list[dict[str, Any]]:
    """The rounds of warm-up and search of a run that has a policy; empty for other runs."""
    if run.metrics_kind != "policy":
        return []
    return [event for event in rounds_of(run) if event.get("phase") != "final"]


def draw_policy(runs: Mapping[str, Run], path: Path) -> Path:
    """Three panels: training accuracy with its moving average, entropy of the policy, share of skip connections."""
    repeated = {
        name: own
        for name, same in repetitions(runs).items()
        if (own := [found for run in same if (found := policy_rounds(run))])
    }
    rounds = [found for own in repeated.values() for found in own]
    if not rounds:
        raise ConfigError(
            "none of these runs has a policy to draw; `atoll methods` lists the searches by a policy",
            code="nothing-to-draw",
        )
    figure = new_figure(7.6, 8.4)
    accuracy, entropy, skips = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    for number, (name, own) in enumerate(repeated.items()):
        colour, label = PALETTE[number % len(PALETTE)], plain(name)
        if len(own) == 1:
            _line(accuracy, own, "accuracy", colour, factor=100, linewidth=0.8, alpha=0.3)
        _line(accuracy, own, "moving_accuracy", colour, label=label, factor=100, linewidth=1.8)
        _line(entropy, own, "entropy", colour, linewidth=1.6)
        _line(entropy, own, "entropy_without_signal", colour, linewidth=1.0, linestyle="--", alpha=0.7)
        _line(skips, own, "skip_expected", colour, factor=100, linewidth=1.6)
        _line(skips, own, "skip_share", colour, factor=100, linewidth=1.0, linestyle=":", drawstyle="steps-mid")
    bands = any(len(own) > 1 for own in repeated.values())
    faint = "bands: deviation over seeds" if bands else "faint: each round"
    accuracy.set_ylabel(f"training accuracy (%)\n{faint}")
    accuracy.legend(frameon=False, fontsize=9, loc="lower right")
    entropy.set_ylabel("entropy of an edge\n(nats; dashed: without signal)")
    skips.set_ylabel("skip connections (%)\ndotted: in the found cells")
    skips.axhline(100 * CHANCE, color=FAINT, linewidth=0.8)
    skips.set_ylim(bottom=0)
    skips.set_xlabel("round")
    for axes in (accuracy, entropy, skips):
        _mark_warmups(axes, rounds)
        whole_rounds(axes)
        tidy(axes)
    entitle(figure, "Warm-up and search", runs)
    return save(figure, path)


def _line(
    axes: Axes,
    runs: Sequence[Sequence[Mapping[str, Any]]],
    quantity: str,
    colour: str,
    factor: float = 1,
    **look: Any,
) -> None:
    """The quantity round by round; of runs that differ in their seed only, the mean with a band of one deviation."""
    values: dict[int, list[float]] = {}
    for event in (event for events in runs for event in events if quantity in event):
        values.setdefault(event["round"], []).append(factor * event[quantity])
    rounds = sorted(number for number, own in values.items() if len(own) == len(runs))
    means = [float(np.mean(values[number])) for number in rounds]
    marker = "o" if len(rounds) == 1 else None  # a single point has no visible line
    axes.plot(rounds, means, color=colour, marker=marker, **look)
    if len(runs) > 1:
        spread = [float(np.std(values[number], ddof=1)) for number in rounds]
        low, high = ([mean + sign * one for mean, one in zip(means, spread, strict=True)] for sign in (-1, 1))
        axes.fill_between(rounds, low, high, color=colour, alpha=0.18, linewidth=0)


def _mark_warmups(axes: Axes, runs: Sequence[Sequence[Mapping[str, Any]]]) -> None:
    """A line between warm-up and search; runs with equal warm-ups share it."""
    for end in sorted({max(warm) for events in runs if (warm := _warmup(events)) and len(warm) < len(events)}):
        axes.axvline(end + 0.5, color=FAINT, linestyle=":", linewidth=1.2)


def _warmup(events: Sequence[Mapping[str, Any]]) -> list[int]:
    return [event["round"] for event in events if event.get("phase") == "warmup"]


POLICY = Figure(
    "policy",
    "training accuracy, entropy and skip connections of a search by a policy",
    lambda run: bool(policy_rounds(run)),
    lambda runs, path, _: draw_policy(runs, path),
)
