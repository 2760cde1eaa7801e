"""A search by a policy or by alphas: training accuracy (the reinforcement paper's Fig. 3 to 6, 8 and 12) and its
deviation over the replies, the entropy of the policy, the share of skip connections, the size of the compensation."""

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
WINDOW = 50  # rounds of the moving mean of deviations


def policy_rounds(run: Run) -> list[dict[str, Any]]:
    """The rounds of warm-up and search of a run that has a policy; empty for other runs."""
    if run.metrics_kind != "policy":
        return []
    return _with_moving_deviations([event for event in rounds_of(run) if event.get("phase") != "final"])


def _with_moving_deviations(rounds: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of one round's few replies the deviation says little: with its mean over the last rounds of the same phase."""
    recent: list[tuple[str | None, float]] = []
    found: list[dict[str, Any]] = []
    for event in rounds:
        if "accuracy_deviation" not in event:
            found.append(dict(event))
            continue
        phase = event.get("phase")
        recent = [*[one for one in recent if one[0] == phase][1 - WINDOW :], (phase, event["accuracy_deviation"])]
        found.append({**event, "moving_deviation": float(np.mean([value for _, value in recent]))})
    return found


def draw_policy(runs: Mapping[str, Run], path: Path) -> Path:
    """Panels of training accuracy with its moving average, the deviation over replies, the entropy of the policy, the
    share of skip connections and, if late replies were compensated, by how much."""
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
    known = {quantity for events in rounds for event in events for quantity in event}
    shares = {"accuracy": 3.0, "moving_deviation": 1.3, "entropy": 2.0, "skips": 2.0, "compensation": 1.3}
    shares = {
        name: share for name, share in shares.items() if name in ("accuracy", "entropy", "skips") or name in known
    }
    figure = new_figure(7.6, 1.2 * sum(shares.values()))
    drawn = figure.subplots(len(shares), 1, sharex=True, height_ratios=list(shares.values()))
    panels = dict(zip(shares, drawn, strict=True))
    accuracy, entropy, skips = panels["accuracy"], panels["entropy"], panels["skips"]
    for number, (name, own) in enumerate(repeated.items()):
        colour, label = PALETTE[number % len(PALETTE)], plain(name)
        if len(own) == 1:
            _line(accuracy, own, "accuracy", colour, factor=100, linewidth=0.8, alpha=0.3)
        _line(accuracy, own, "moving_accuracy", colour, label=label, factor=100, linewidth=1.8)
        _line(entropy, own, "entropy", colour, linewidth=1.6)
        _line(entropy, own, "entropy_without_signal", colour, linewidth=1.0, linestyle="--", alpha=0.7)
        _line(entropy, own, "entropy_without_signal_5", colour, linewidth=1.0, linestyle=":")
        for name, width in (("moving_deviation", 1.6), ("compensation", 1.0)):
            if name in panels:
                _line(panels[name], own, name, colour, factor=100, linewidth=width)
        _line(skips, own, "skip_expected", colour, factor=100, linewidth=1.6)
        _line(skips, own, "skip_share", colour, factor=100, linewidth=1.0, linestyle=":", drawstyle="steps-mid")
    bands = any(len(own) > 1 for own in repeated.values())
    faint = "bands: deviation over seeds" if bands else "faint: each round"
    accuracy.set_ylabel(f"training accuracy (%)\n{faint}")
    accuracy.legend(frameon=False, fontsize=9, loc="lower right")
    signal = "entropy_without_signal" in known
    entropy.set_ylabel(
        "entropy of an edge (nats)" + ("\nwithout signal: median dashed,\n5th percentile dotted" if signal else "")
    )
    if "moving_deviation" in panels:
        panels["moving_deviation"].set_ylabel("deviation over\nreplies (points)")
    if "compensation" in panels:
        panels["compensation"].set_ylabel("compensation (%\nof a late gradient)")
    skips.set_ylabel("skip connections (%)\ndotted: in the found cells")
    skips.axhline(100 * CHANCE, color=FAINT, linewidth=0.8)
    skips.set_ylim(bottom=0)
    drawn[-1].set_xlabel("round")
    for name in ("moving_deviation", "compensation"):
        if name in panels:
            panels[name].set_ylim(bottom=0)
    for axes in drawn:
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
