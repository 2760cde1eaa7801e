"""A search by a policy or by alphas: training accuracy (the reinforcement paper's Fig. 3 to 6, 8 and 12), the entropy
of the policy, and the share of skip connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.report.figures import Figure
from atoll.report.figures.canvas import FAINT, INK, PALETTE, new_figure, plain, save, tidy, whole_rounds
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
    rounds = {name: policy_rounds(run) for name, run in runs.items()}
    if not any(rounds.values()):
        raise ConfigError(
            "none of these runs has a policy to draw; `atoll methods` lists the searches by a policy",
            code="nothing-to-draw",
        )
    figure = new_figure(7.6, 8.0)
    accuracy, entropy, skips = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 2])
    for number, (name, events) in enumerate(rounds.items()):
        colour, label = PALETTE[number % len(PALETTE)], plain(name)
        _line(accuracy, events, "accuracy", colour, factor=100, linewidth=0.8, alpha=0.3)
        _line(accuracy, events, "moving_accuracy", colour, label=label, factor=100, linewidth=1.8)
        _line(entropy, events, "entropy", colour, linewidth=1.6)
        _line(entropy, events, "entropy_without_signal", colour, linewidth=1.0, linestyle="--", alpha=0.7)
        _line(skips, events, "skip_expected", colour, factor=100, linewidth=1.6)
        _line(skips, events, "skip_share", colour, factor=100, linewidth=1.0, linestyle=":", drawstyle="steps-mid")
    accuracy.set_ylabel("training accuracy (%)\nfaint: each round")
    accuracy.legend(frameon=False, fontsize=9, loc="lower right")
    entropy.set_ylabel("entropy of an edge\n(nats; dashed: without signal)")
    skips.set_ylabel("skip connections (%)\ndotted: in the found cells")
    skips.axhline(100 * CHANCE, color=FAINT, linewidth=0.8)
    skips.set_ylim(bottom=0)
    skips.set_xlabel("round")
    for axes in (accuracy, entropy, skips):
        _mark_warmups(axes, list(rounds.values()))
        whole_rounds(axes)
        tidy(axes)
    figure.suptitle("Warm-up and search", fontsize=12, color=INK)
    return save(figure, path)


def _line(
    axes: Axes, events: Sequence[Mapping[str, Any]], quantity: str, colour: str, factor: float = 1, **look: Any
) -> None:
    known = [event for event in events if quantity in event]
    marker = "o" if len(known) == 1 else None  # a single point has no visible line
    values = [factor * event[quantity] for event in known]
    axes.plot([event["round"] for event in known], values, color=colour, marker=marker, **look)


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
