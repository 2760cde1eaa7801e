"""Searches by pruning: the federated NetAdapt paper's Fig. 3 to 8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from atoll.report.figures import Figure, Runs
from atoll.report.figures.canvas import (
    FAINT,
    INK,
    PALETTE,
    VERMILLION,
    new_figure,
    plain,
    save,
    scale,
    tidy,
    whole_rounds,
)
from atoll.report.figures.titles import entitle
from atoll.report.figures.tracks import rounds_of, settings
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes


MULTIPLIER = "width:"  # the prefix of their names in a `retrain` run


@dataclass(frozen=True)
class PrunedNetwork:
    """One network of a sequence."""

    name: str
    macs: float
    accuracy: float
    tested: bool  # on test data, else on validation data
    architecture: Mapping[str, Any] | None = None  # None until the run is finished


@dataclass(frozen=True)
class PrunedSequence:
    """Networks by falling MACs. `kind`: pruned (as the search left them), tuned (trained further), multipliers."""

    run: str
    kind: str
    members: list[PrunedNetwork]


def prunes(run: Run) -> bool:
    """Whether this run is a search by pruning."""
    return run.metrics_kind == "pruning"


def sequences(name: str, run: Run) -> list[PrunedSequence]:
    """The sequences of one run; empty for other runs, and for those that have no network yet."""
    if prunes(run):
        found = [PrunedSequence(name, "pruned", _searched(run))]
    elif _member_widths(run):
        tuned = _tuned(run)
        pruned = [member for member in tuned if not member.name.startswith(MULTIPLIER)]
        multiplied = [member for member in tuned if member.name.startswith(MULTIPLIER)]
        found = [PrunedSequence(name, "tuned", pruned), PrunedSequence(name, "multipliers", multiplied)]
    else:
        return []
    ordered = [PrunedSequence(one.run, one.kind, sorted(one.members, key=lambda member: -member.macs)) for one in found]
    return [one for one in ordered if one.members]


def _searched(run: Run) -> list[PrunedNetwork]:
    if run.finished:
        return [_member(found["id"], found["objectives"], found["architecture"]) for found in run.result["candidates"]]
    ends = [event for event in rounds_of(run) if "network" in event and "macs" in event.get("resources", {})]
    return [_member(event["network"], {**event, "macs": event["resources"]["macs"]}) for event in ends]


def _tuned(run: Run) -> list[PrunedNetwork]:
    """Networks that were trained side by side, with the metrics of the last round."""
    last = rounds_of(run)[-1].get("networks", {})
    found = []
    seen: list[tuple[bool, dict[str, Any]]] = []
    for name, architecture in _member_widths(run).items():
        kind_of = (name.startswith(MULTIPLIER), architecture)
        if kind_of in seen:  # the same network under another name
            continue
        seen.append(kind_of)
        row = last.get(name, {})
        errors = {
            error: 1 - row[accuracy]
            for error, accuracy in (("error", "accuracy"), ("test_error", "test_accuracy"))
            if row.get(accuracy) is not None
        }
        if errors:
            found.append(_member(name, {"error": 1.0, **errors, "macs": _macs(architecture)}, architecture))
    return found


def _member(name: str, metrics: Mapping[str, Any], architecture: Mapping[str, Any] | None = None) -> PrunedNetwork:
    tested = "test_error" in metrics
    accuracy = 1 - float(metrics["test_error" if tested else "error"])
    return PrunedNetwork(name, float(metrics["macs"]), accuracy, tested, architecture)


def _member_widths(run: Run) -> dict[str, dict[str, Any]]:
    """The pruned networks of a run that trains networks side by side."""
    given = settings(run).get("networks", {}) if run.metrics_kind == "networks" else {}
    return {name: arch for name, arch in given.items() if isinstance(arch, dict) and arch.get("space") == "widths"}


def _macs(architecture: Mapping[str, Any]) -> int:
    from atoll.spaces import cost

    return cost(architecture).macs


PANELS = 4  # iterations of a run that are shown
MOST_LEVEL = 8  # names of layers that are written horizontally
NEW_LINE = "\n"
WORDS = {"pruned": "", "tuned": ", tuned", "multipliers": ", width multipliers"}
LINES = {"pruned": "--", "tuned": "-", "multipliers": ":"}
MARKS = {"pruned": "o", "tuned": "o", "multipliers": "s"}


def draw_sequences(found: Sequence[PrunedSequence], path: Path, runs: Runs | None = None) -> Path:
    """Accuracy against MACs (Fig. 4), also of runs with other round numbers (Fig. 7) or with tuning (Fig. 8)."""
    figure = new_figure(7.6, 4.8)
    axes = figure.add_subplot()
    factor, word = scale(max(member.macs for one in found for member in one.members))
    tested = all(member.tested for one in found for member in one.members)
    names = list(dict.fromkeys(one.run for one in found))
    for one in found:
        axes.plot(
            [member.macs / factor for member in one.members],
            [100 * member.accuracy for member in one.members],
            LINES[one.kind],
            marker=MARKS[one.kind],
            markersize=4,
            color=PALETTE[names.index(one.run) % len(PALETTE)],
            label=_label(one),
            linewidth=1.6,
        )
    axes.set_xlabel("multiply-accumulates of one forward pass" + (f" ({word})" if word else ""))
    axes.set_ylabel(f"accuracy on {'test' if tested else 'validation or test'} data (%)")
    axes.margins(x=0.04, y=0.08)
    tidy(axes)
    figure.legend(loc="outside lower center", ncols=min(3, len(found)), frameon=False, fontsize=9, labelcolor=INK)
    entitle(figure, "Networks of falling cost", runs or {})
    return save(figure, path)


def draw_widths(found: Sequence[PrunedSequence], path: Path, runs: Runs | None = None) -> Path:
    """The remaining share of the start network's width by layer (Fig. 5), for networks of about equal MACs."""
    chosen = _of_equal_macs(found)
    shares = [_shares(member, whole) for _, member, whole in chosen]
    whole = chosen[0][2]
    units, words = list(whole), _labels(found)
    figure = new_figure(max(6.4, 1.6 + 0.22 * (len(chosen) + 1) * len(units)), 4.2)
    axes = figure.add_subplot()
    width = 0.82 / len(chosen)
    factor, _ = scale(max(member.macs for _, member, _ in chosen))
    for number, ((label, member, _), share) in enumerate(zip(chosen, shares, strict=True)):
        places = [place + (number + 0.5) * width - 0.41 for place in range(len(units))]
        heights = [100 * share.get(unit, 0.0) for unit in units]
        text = f"{label}: {member.name}, {member.macs / factor:.3g} {_letter(factor)}MACs"
        axes.bar(places, heights, 0.94 * width, color=PALETTE[number % len(PALETTE)], label=text)
    many = len(units) > MOST_LEVEL
    names = [f"{words[unit]}{', ' if many else NEW_LINE}{whole[unit]}" for unit in units]
    axes.set_xticks(range(len(units)), names, rotation=90 if many else 0)
    axes.set_xlabel("prunable layer, and its width in the start network")
    axes.set_ylabel("remaining width (%)")
    axes.set_ylim(0, 105)
    tidy(axes)
    axes.grid(axis="x", visible=False)
    figure.legend(loc="outside lower center", ncols=min(2, len(chosen)), frameon=False, fontsize=9, labelcolor=INK)
    entitle(figure, "What is left of each layer, at about equal MACs", runs or {})
    return save(figure, path)


def _of_equal_macs(found: Sequence[PrunedSequence]) -> list[tuple[str, PrunedNetwork, dict[str, int]]]:
    """(label, network, the start network's widths): of each sequence, the network nearest to the MACs all reach."""
    whole = _start_widths(found)
    reach = max(min(member.macs for member in one.members) for one in found)
    chosen = []
    for one in found:
        known = [member for member in one.members if member.architecture is not None]
        nearest = min(known, key=lambda member: abs(member.macs - reach))
        chosen.append((_label(one), nearest, whole))
    return chosen


def _label(one: PrunedSequence) -> str:
    """The run's name and the kind of sequence, unless the name contains it."""
    word = WORDS[one.kind]
    return plain(one.run, 48) + ("" if word.strip(", ") in one.run else word)


def _start_widths(found: Sequence[PrunedSequence]) -> dict[str, int]:
    """The largest width of every layer in any network: that of the start network, if it is among them."""
    widest: dict[str, int] = {}
    for one in found:
        for member in one.members:
            for unit, width in _widths(member).items():
                widest[unit] = max(width, widest.get(unit, 0))
    return widest


def _widths(member: PrunedNetwork) -> dict[str, int]:
    from atoll.spaces.pruned.pruning import units

    return {} if member.architecture is None else {unit.name: unit.width for unit in units(dict(member.architecture))}


def _labels(found: Sequence[PrunedSequence]) -> dict[str, str]:
    """The layers' names for people."""
    from atoll.spaces.pruned.pruning import labels

    return labels([member.architecture for one in found for member in one.members if member.architecture is not None])


def _shares(member: PrunedNetwork, whole: Mapping[str, int]) -> dict[str, float]:
    return {unit: width / whole[unit] for unit, width in _widths(member).items()}


def _letter(factor: float) -> str:
    return {1e9: "G", 1e6: "M", 1e3: "k"}.get(factor, "")


def draw_candidates(runs: Mapping[str, Run], path: Path) -> Path:
    """The accuracy of the candidates by round in some iterations, with the chosen one marked (Fig. 3)."""
    rows = {name: _iterations(run) for name, run in runs.items()}
    columns = max(len(_shown(found)) for found in rows.values())
    figure = new_figure(max(6.0, 3.1 * columns), 1.2 + 2.9 * len(rows))
    panels = figure.subplots(len(rows), columns, squeeze=False, sharey="row")
    for line, (name, found) in zip(panels, rows.items(), strict=True):
        shown = _shown(found)
        for axes, number in zip(line, shown, strict=False):
            _candidates(axes, found[number])
            layer = found[number][-1].get("layer")
            title = f"iteration {number}" + (f": {plain(layer, 30)}" if layer else "")
            axes.set_title(title, fontsize=10, color=INK)
        for axes in line[len(shown) :]:
            axes.axis("off")
        line[0].set_ylabel(f"{plain(name, 30)}\naccuracy (%)" if len(runs) > 1 else "accuracy on validation data (%)")
    _legend(figure)
    entitle(figure, "Candidates of some iterations, round by round", runs)
    return save(figure, path)


def _iterations(run: Run) -> dict[int, list[dict[str, Any]]]:
    """Iteration -> its completed rounds, without iterations that have none."""
    found: dict[int, list[dict[str, Any]]] = {}
    for event in rounds_of(run, "search") if prunes(run) else []:
        if "candidates" in event:
            found.setdefault(event["iteration"], []).append(event)
    return found


def _shown(found: Mapping[int, Any]) -> list[int]:
    """The first, the last, and some in between."""
    numbers = list(found)
    if len(numbers) <= PANELS:
        return numbers
    return [numbers[round(place * (len(numbers) - 1) / (PANELS - 1))] for place in range(PANELS)]


def _candidates(axes: Axes, rounds: Sequence[Mapping[str, Any]]) -> None:
    curves: dict[str, dict[int, float]] = {}
    for event in rounds:
        for unit, row in event["candidates"].items():
            curves.setdefault(unit, {})[event["round_in_iteration"]] = 100 * row["accuracy"]
    chosen = rounds[-1].get("chosen")
    for unit, curve in curves.items():
        won = unit == chosen
        colour, style = (VERMILLION, "--") if won else (FAINT, "-")
        order, width = (3, 1.9) if won else (2, 1.0)
        axes.plot(
            list(curve),
            list(curve.values()),
            style,
            color=colour,
            marker="o",
            markersize=3,
            linewidth=width,
            zorder=order,
        )
    axes.set_xlabel("round")
    axes.margins(x=0.08, y=0.1)
    whole_rounds(axes)
    tidy(axes)


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=VERMILLION, linestyle="--", marker="o", markersize=4, label="the chosen candidate"),
        Line2D([], [], color=FAINT, marker="o", markersize=4, label="other candidates, until they were dropped"),
    ]
    figure.legend(handles=entries, loc="outside lower center", ncols=2, frameon=False, fontsize=9, labelcolor=INK)


def _sequences(runs: Runs) -> list[PrunedSequence]:
    return [one for name, run in runs.items() for one in sequences(name, run)]


def _built(runs: Runs) -> list[PrunedSequence]:
    """The sequences whose architectures are known: those of runs that are finished, or were given them."""
    return [one for one in _sequences(runs) if one.members[-1].architecture is not None]


SEQUENCE = Figure(
    "sequence",
    "accuracy against MACs of the networks that pruning found, tuned or not",
    lambda run: bool(_sequences({"": run})),
    lambda runs, path, _: draw_sequences(_sequences(runs), path, runs),
)
WIDTHS = Figure(
    "widths",
    "the same networks layer by layer",
    lambda run: bool(_built({"": run})),
    lambda runs, path, _: draw_widths(_built(runs), path, runs),
)
CANDIDATES = Figure(
    "candidates",
    "accuracy of the candidates of an iteration after every round",
    lambda run: bool(_iterations(run)),
    lambda runs, path, _: draw_candidates(runs, path),
)
