"""Runs on a virtual network: what each client did when, and the duration of the rounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.core.ledger import ClientAccount
from atoll.errors import ConfigError
from atoll.report.figures import Figure, Runs
from atoll.report.figures.canvas import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PALETTE,
    SKY,
    VERMILLION,
    new_figure,
    plain,
    save,
    tidy,
    whole_rounds,
)
from atoll.report.figures.titles import entitle
from atoll.run.accounts import STARVED, account_of, fair_shares
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROUNDS = 8  # shown in a timeline: more would be too narrow
CLIENTS = 40
PARTS = (("download", SKY), ("compute", GREEN), ("upload", BLUE))
ENDS = {"late": ("D", ORANGE), "stale": ("X", VERMILLION), "failed": ("x", INK), "rejected": ("x", VERMILLION)}
WORDS = {"late": "late", "stale": "discarded as stale", "failed": "no reply", "rejected": "rejected"}


@dataclass(frozen=True)
class TaskTimes:
    """The times of a task, in virtual seconds, and the fate of its reply; `round` is the round in which it was sent."""

    client: str
    round: int
    began: float
    downloaded: float | None  # None, like the next: there was no reply
    computed: float | None
    arrived: float
    fate: str
    held_until: float | None = None  # when a staleness mix released the reply

    @property
    def end(self) -> float:
        """When the server received the reply."""
        return self.arrived if self.held_until is None else self.held_until


@dataclass(frozen=True)
class RoundTimes:
    """The times of a round, and the tasks whose fate was decided in it."""

    round: int
    start: float
    end: float
    steps: Sequence[TaskTimes]


def spans(run: Run) -> list[RoundTimes]:
    """The rounds of a run on a virtual network; empty if there is none, or if nothing took time on it."""
    found = [
        RoundTimes(event["round"], times["from"], times["to"], [TaskTimes(*row) for row in times["tasks"]])
        for event in run.rounds
        if isinstance(times := event.get("simulation"), dict)
    ]
    return found if found and found[-1].end > 0 else []


def latencies(run: Run) -> dict[int, tuple[float, float]]:
    """Round -> the longest and the mean time from the start of its tasks to their replies, including late ones."""
    seconds: dict[int, list[float]] = {}
    for span in spans(run):
        for step in span.steps:
            if step.computed is not None and step.fate != "failed":
                seconds.setdefault(step.round, []).append(step.arrived - step.began)
    return {number: (max(found), sum(found) / len(found)) for number, found in sorted(seconds.items())}


def draw_timeline(runs: Runs, path: Path, last: int = ROUNDS) -> Path:
    """A panel per run, a row per client, over the last rounds: download, compute, upload, and unused replies."""
    shown = {name: found[-last:] for name, run in runs.items() if (found := spans(run))}
    if not shown:
        raise ConfigError(
            "none of these runs has a virtual network on which anything took time; there is no timeline to draw",
            code="nothing-to-draw",
        )
    clients = [_clients(found)[:CLIENTS] for found in shown.values()]
    heights = [1.0 + 0.26 * len(names) for names in clients]
    figure = new_figure(10.5, 1.4 + sum(heights))
    panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights)
    for axes, (name, found), names in zip(panels[:, 0], shown.items(), clients, strict=True):
        _draw_rounds(axes, found, names)
        _draw_accounts(axes, runs[name], names)
        more = len(_clients(found)) - len(names)
        title = f"rounds {found[0].round} to {found[-1].round}" + (f" (and {more} more clients)" if more else "")
        axes.set_title(f"{plain(name)}, {title}" if len(shown) > 1 else title, fontsize=10, color=INK, pad=18)
    panels[-1][0].set_xlabel("virtual seconds since the start of the run")
    steps = [step for found in shown.values() for span in found for step in span.steps]
    handles = _legend({step.fate for step in steps}, any(step.end > step.arrived for step in steps))
    figure.legend(handles=handles, ncols=len(handles), frameon=False, fontsize=8.5, loc="outside lower center")
    entitle(figure, "What the clients did when", {name: runs[name] for name in shown})
    return save(figure, path)


def _clients(found: Sequence[RoundTimes]) -> list[str]:
    return sorted({step.client for span in found for step in span.steps})


def _draw_rounds(axes: Axes, shown: Sequence[RoundTimes], names: Sequence[str]) -> None:
    first, end = shown[0].start, shown[-1].end
    rows = {name: place for place, name in enumerate(names)}
    for span in shown:
        axes.axvline(span.end, color=FAINT, linewidth=0.8, zorder=0)
        for step in span.steps:
            if step.client in rows:
                _draw_step(axes, step, rows[step.client], first)
    _name_rounds(axes, shown, first, end)
    axes.set_xlim(first, end + 0.01 * (end - first))
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_yticks(range(len(names)), [plain(name, 24) for name in names])
    tidy(axes)
    axes.grid(visible=False)


def _draw_accounts(axes: Axes, run: Run, names: Sequence[str]) -> None:
    """On the right, over the whole run: how many of a client's tasks counted, as a share of the mean, too."""
    accounts = {name: account_of(plain) for name, plain in run.clients.items()}
    if not accounts:
        return
    shares = fair_shares(accounts)
    right = axes.secondary_yaxis("right")
    texts = []
    for name in names:
        own = accounts.get(name, ClientAccount())
        text = f"{own.used + own.late} of {own.asked}"
        texts.append(f"{text}, {shares[name]:.2f}" if name in shares else text)
    right.set_yticks(range(len(names)), texts)
    right.tick_params(length=0, labelsize=8, colors=INK)
    right.spines["right"].set_visible(False)
    for name, label in zip(names, right.get_yticklabels(), strict=True):
        label.set_color(VERMILLION if shares.get(name, 1.0) < STARVED else INK)
    head = "replies used,\nof a fair share" if shares else "replies used"
    axes.text(1.01, 1.01, head, transform=axes.transAxes, fontsize=8, color=FAINT, va="bottom")


def draw_latency(runs: Mapping[str, Run], path: Path) -> Path:
    """Maximal and mean latency of the tasks of every round, and the duration of the round."""
    figure = new_figure(7.6, 4.4)
    axes = figure.add_subplot()
    for number, (name, run) in enumerate(runs.items()):
        found, whole = latencies(run), {span.round: span.end - span.start for span in spans(run)}
        label, colour = (f"{plain(name)}, " if len(runs) > 1 else ""), PALETTE[number % len(PALETTE)]
        many = len(whole) > 60
        axes.plot(list(found), [high for high, _ in found.values()], color=colour, label=f"{label}slowest reply")
        axes.plot(list(found), [mean for _, mean in found.values()], "--", color=colour, label=f"{label}mean reply")
        axes.plot(
            list(whole),
            list(whole.values()),
            "." if many else "o",
            color=INK if len(runs) == 1 else colour,
            markersize=3,
            label=f"{label}duration of the round",
        )
    axes.set_xlabel("round")
    axes.set_ylabel("virtual seconds")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    whole_rounds(axes)
    tidy(axes)
    entitle(figure, "Latency of replies", runs)
    return save(figure, path)


def _name_rounds(axes: Axes, shown: Sequence[RoundTimes], first: float, end: float) -> None:
    """The numbers of the rounds above them, where there is space."""
    across = axes.get_xaxis_transform()
    for span in shown:
        if span.end - span.start > 0.03 * (end - first):
            middle = (span.start + span.end) / 2
            axes.text(
                middle,
                1.01,
                f"round {span.round}" if len(shown) <= 6 else str(span.round),
                transform=across,
                ha="center",
                va="bottom",
                fontsize=8,
                color=FAINT,
            )


def _draw_step(axes: Axes, step: TaskTimes, row: int, first: float) -> None:
    if step.end < first:
        return
    if step.downloaded is None or step.computed is None:
        axes.plot([step.began, step.arrived], [row, row], ":", color=FAINT, linewidth=1.2)
    else:
        moments = (step.began, step.downloaded, step.computed, step.arrived)
        faint = 0.35 if step.fate == "failed" else 1.0
        for (_, colour), start, end in zip(PARTS, moments[:-1], moments[1:], strict=True):
            axes.barh(row, end - start, 0.62, start, color=colour, alpha=faint, linewidth=0)
    if step.end > step.arrived:
        axes.plot([step.arrived, step.end], [row, row], ":", color=ORANGE, linewidth=1.2)
    if step.fate in ENDS:
        marker, colour = ENDS[step.fate]
        axes.plot(step.end, row, marker, color=colour, markersize=5, markeredgewidth=1.4, clip_on=False, zorder=3)


def _legend(fates: set[str], held: bool) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    entries: list[Any] = [Patch(color=colour, label=word) for word, colour in PARTS]
    entries += [
        Line2D([], [], marker=marker, color=colour, linestyle="", markersize=5, label=WORDS[fate])
        for fate, (marker, colour) in ENDS.items()
        if fate in fates
    ]
    if held:
        entries.append(Line2D([], [], linestyle=":", color=ORANGE, label="held back by the staleness mix"))
    return entries


def _took_time(run: Run) -> bool:
    return bool(spans(run))


TIMELINE = Figure(
    "timeline",
    "on a virtual network: what each client did when",
    _took_time,
    lambda runs, path, _: draw_timeline(runs, path),
)
LATENCY = Figure(
    "latency",
    "on a virtual network: how long replies took, round by round",
    _took_time,
    lambda runs, path, _: draw_latency(runs, path),
)
