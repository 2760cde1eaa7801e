"""By round: accuracy and MACs of High and Knee (the real-time paper's Fig. 9 and 11), and the hypervolume."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.report.figures import Figure
from atoll.report.figures.canvas import (
    BLUE,
    FAINT,
    INK,
    PALETTE,
    VERMILLION,
    new_figure,
    plain,
    save,
    scale,
    short,
    tidy,
    whole_rounds,
)
from atoll.report.figures.titles import about, apart, data_of, entitle
from atoll.report.figures.tracks import Track, front, hypervolume, rounds_of, tracks
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Sheet

COLOURS = {"high": BLUE, "knee": VERMILLION, None: BLUE}
LINES = {"high": "-", "knee": "--", None: "-"}
FEW = 40  # measurements: up to this number each is marked


@dataclass(frozen=True)
class _Line:
    """A track with its label and style."""

    label: str
    colour: str
    style: str
    track: Track


def draw_rounds(runs: Mapping[str, Run], path: Path, beside: Mapping[str, Run] | None = None) -> Path:
    """Two panels: accuracy, and MACs if they are known, of each run's models of interest after every round."""
    groups = _by_data(runs, beside or {})
    if not any(tracks(run) for run in runs.values()):
        raise ConfigError("none of these runs has measured an error yet", code="nothing-to-draw")
    figure, sheets = _sheets(len(groups), tall=any(track.pick for run in runs.values() for track in tracks(run)))
    for sheet, (data, (own, others)) in zip(sheets, groups.items(), strict=True):
        _panels(sheet, [*_searched(own, None, len(runs) == 1), *_compared(others)], "round")
        for name, run in own.items():
            words = "final training" if len(runs) == 1 else f"{plain(name)}: final training"
            if (final := rounds_of(run, "final")) and tracks(run):
                _mark_end_of_search(sheet, final[0]["round"], words)
        if len(groups) > 1:
            sheet.suptitle(plain(f"on {data}"), fontsize=10, color=INK)
    entitle(figure, "After every round", runs)
    return save(figure, path)


def draw_training(runs: Mapping[str, Run], path: Path, beside: Mapping[str, Run] | None = None) -> Path:
    """The final training of what was found, its rounds counted from 1."""
    groups = _by_data(runs, beside or {})
    figure, sheets = _sheets(len(groups), tall=False)
    for sheet, (data, (own, others)) in zip(sheets, groups.items(), strict=True):
        lines = [_priced(line) for line in (*_searched(own, "final", len(runs) == 1), *_compared(others))]
        _panels(sheet, lines, "round of the final training")
        if len(groups) > 1:
            sheet.suptitle(plain(f"on {data}"), fontsize=10, color=INK)
    entitle(figure, "Final training of the networks found", runs)
    return save(figure, path)


def _by_data(runs: Mapping[str, Run], beside: Mapping[str, Run]) -> dict[str, tuple[dict[str, Run], dict[str, Run]]]:
    """Data -> its runs and those to compare with: accuracies on different data have no common axis."""
    groups = apart(runs, data_of)
    others = apart(beside, data_of)
    return {data: (groups.get(data, {}), others.get(data, {})) for data in dict.fromkeys([*groups, *others])}


def _sheets(number: int, tall: bool) -> tuple[Sheet, list[Any]]:
    """A figure with this many parts beside each other; `tall` ones have two panels."""
    figure = new_figure(7.6 * number, 6.8 if tall else 4.6)
    return figure, list(figure.subfigures(1, number, squeeze=False)[0]) if number > 1 else [figure]


def draw_hypervolume(runs: Mapping[str, Run], path: Path) -> Path:
    """The share of the space up to (error 1, cost of the master) that each front dominates."""
    curves = {name: curve for name, run in runs.items() if (curve := hypervolume(run))}
    if not curves:
        raise ConfigError(
            "none of these runs has a hypervolume to draw; runs of a search have one", code="nothing-to-draw"
        )
    # Each search measures its own share of its own space: on other data or with other costs it is another quantity.
    groups = apart({name: runs[name] for name in curves}, _space)
    figure = new_figure(7.2 * len(groups), 4.2)
    colours = {name: PALETTE[number % len(PALETTE)] for number, name in enumerate(curves)}
    for axes, own in zip(figure.subplots(1, len(groups), squeeze=False)[0], groups.values(), strict=True):
        for name in own:
            curve = curves[name]
            marker = "o" if len(curve) <= FEW else None
            axes.plot(
                list(curve), list(curve.values()), color=colours[name], marker=marker, markersize=3, label=plain(name)
            )
        axes.set_xlabel("round")
        axes.set_ylabel("hypervolume (1 is perfect)")
        axes.legend(frameon=False, fontsize=9, loc="lower right")
        whole_rounds(axes)
        tidy(axes)
        if len(groups) > 1:
            axes.set_title(about(own.values()), fontsize=10, color=INK)
    entitle(figure, "Share of the space of error and cost that the front dominates", runs)
    return save(figure, path)


def _space(run: Run) -> tuple[str, tuple[str, ...]]:
    """Data and costs: what the hypervolume of a search is a share of."""
    points = front(run)
    return data_of(run), tuple(points[0].costs) if points else ()


def _searched(runs: Mapping[str, Run], phase: str | None, alone: bool) -> Iterator[_Line]:
    """Colours distinguish High and Knee of a run `alone`; else the runs, and line styles distinguish the picks."""
    for number, (name, run) in enumerate(runs.items()):
        for track in _from_one(tracks(run, phase)) if phase else tracks(run):
            pick = track.pick.title() if track.pick else ""
            label = plain(name) if not pick else pick if alone else f"{plain(name)}, {pick}"
            colour = COLOURS[track.pick] if alone else PALETTE[number % len(PALETTE)]
            yield _Line(label, colour, LINES[track.pick], track)


def _compared(beside: Mapping[str, Run]) -> Iterator[_Line]:
    for number, (name, run) in enumerate(beside.items()):
        for track in tracks(run):
            label = f"{plain(name)}, {track.pick.title()}" if track.pick else plain(name)
            yield _Line(label, (INK, FAINT)[number % 2], LINES[track.pick], track)


def _mark_end_of_search(figure: Any, first: int, words: str) -> None:
    """A line between the search and the final training, which begins with the round `first`."""
    if first == 1:
        return
    end = first - 0.5
    for axes in figure.axes:
        axes.axvline(end, color=FAINT, linestyle=":", linewidth=1.2)
    across = figure.axes[0].get_xaxis_transform()
    figure.axes[0].text(end, 1.0, f" {words}", transform=across, fontsize=8, color=FAINT, va="bottom")


def _from_one(found: list[Track]) -> list[Track]:
    """The same tracks with their rounds counted from their first."""
    before = min((number for track in found for number in track.validation), default=1) - 1

    def moved(curve: dict[int, float]) -> dict[int, float]:
        return {number - before: value for number, value in curve.items()}

    return [
        replace(track, validation=moved(track.validation), test=moved(track.test), macs=moved(track.macs))
        for track in found
    ]


def _priced(line: _Line) -> _Line:
    """The line with its MACs in the label: they are constant while a network is trained, and need no panel."""
    macs = line.track.macs
    if not macs:
        return line
    label = f"{line.label}, {short(max(macs.values()))} MACs"
    return replace(line, label=label, track=replace(line.track, macs={}))


def _panels(sheet: Any, lines: list[_Line], unit: str) -> None:
    priced = any(line.track.macs and line.track.pick for line in lines)  # those of a fixed network are constant
    panels = sheet.subplots(2 if priced else 1, 1, sharex=True, squeeze=False, height_ratios=[3, 2] if priced else [1])
    _accuracies(panels[0][0], lines)
    if priced:
        _macs(panels[1][0], lines)
    panels[-1][0].set_xlabel(unit)
    whole_rounds(panels[-1][0])


def _accuracies(axes: Axes, lines: list[_Line]) -> None:
    """Test accuracy if there is any, with the accuracy of the rounds, on validation rows, faint behind it."""
    tested = any(line.track.test for line in lines)
    rows = " or ".join(dict.fromkeys(line.track.rows for line in lines))
    faint = ""
    for line in lines:
        validation, test = line.track.validation, line.track.test
        if test and test != validation:
            axes.plot(list(validation), _percent(validation), color=line.colour, alpha=0.3, linewidth=1)
            faint = f"\nfaint: on {rows}"
        main = test or validation
        label = f"{line.label}, {line.track.rows}" if tested and not test else line.label
        axes.plot(list(main), _percent(main), line.style, color=line.colour, label=label, linewidth=1.8)
        if len(main) <= FEW:
            axes.plot(list(main), _percent(main), "o", color=line.colour, markersize=4)
    axes.set_ylabel(f"accuracy on {'test rows' if tested else rows} (%){faint}")
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    tidy(axes)


def _macs(axes: Axes, lines: list[_Line]) -> None:
    factor, word = scale(max(value for line in lines for value in line.track.macs.values()))
    for line in lines:
        if line.track.macs:
            values = [value / factor for value in line.track.macs.values()]
            axes.step(list(line.track.macs), values, line.style, where="mid", color=line.colour, linewidth=1.6)
    axes.set_ylabel("MACs of one forward pass" + (f"\n({word})" if word else ""))
    axes.set_ylim(0, 1.08 * max(value for line in lines for value in line.track.macs.values()) / factor)
    tidy(axes)


def _percent(errors: Mapping[int, float]) -> list[float]:
    return [100 * (1 - error) for error in errors.values()]


ROUNDS = Figure("rounds", "accuracy and MACs after every round", lambda run: bool(tracks(run)), draw_rounds)
HYPERVOLUME = Figure(
    "hypervolume",
    "how much of the space of error and cost a front dominates, after every round",
    lambda run: bool(hypervolume(run)),
    lambda runs, path, _: draw_hypervolume(runs, path),
)
TRAINING = Figure(
    "training",
    "the final training of what a search found",
    lambda run: bool(tracks(run, "final")),
    draw_training,
)
