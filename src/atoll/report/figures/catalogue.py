"""All pictures that suit a set of runs, whatever their methods and however far they are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.errors import ConfigError, RunDirectoryError, nearest
from atoll.report.figures.canvas import KINDS, short
from atoll.report.figures.cells import cells_of, draw_cells
from atoll.report.figures.front import draw_front
from atoll.report.figures.networks import draw_networks
from atoll.report.figures.policy import draw_policy, policy_rounds
from atoll.report.figures.pruning import draw_pruning
from atoll.report.figures.retraining import draw_retraining, networks_of, write_validation
from atoll.report.figures.rounds import draw_hypervolume, draw_rounds, draw_training
from atoll.report.figures.timeline import draw_latency, draw_timeline, spans
from atoll.report.figures.tracks import PICKS, front, hypervolume, rounds_of, settings, tracks
from atoll.run.reader import Run, load

FOLDER = "figures"  # within a run directory, of which it is no part: it can be deleted and drawn again


def draw_figures(
    directories: Sequence[Path],
    beside: Sequence[Path] = (),
    out: Path | None = None,
    kind: str = "png",
) -> list[Path]:
    """Draw what the runs in these directories allow; the pictures that were written, into `out` or the first run.

    front         error against cost of the networks of each front
    rounds        accuracy and MACs after every round
    hypervolume   of each front, after every round
    training      from scratch, of what a search found
    policy        training accuracy, entropy and skip connections of searches by a policy
    networks      High and Knee of searches over choice blocks, as rows of blocks
    timeline      on a virtual network: what each client did when (of each run: timeline-2, ...)
    latency       on a virtual network: how long answers were under way, round by round
    cells         normal and reduction cell of networks that are built of found cells
    retraining    networks trained side by side, and validation.md, a table of them
    sequence      accuracy against MACs of networks that pruning left behind, tuned further or not
    widths        the same networks layer by layer
    candidates    accuracy of an iteration's candidates after every round
    cost          what several searches by pruning cost their clients
    """
    if kind not in KINDS:
        raise ConfigError(f"format {kind!r}: unknown; {nearest(kind, KINDS)}", code="unknown-picture-format")
    runs, compared = named_runs(directories), named_runs(beside)
    for run in (*runs.values(), *compared.values()):
        rounds_of(run)  # a run without rounds is an error before anything is written
    folder = out if out is not None else Path(directories[0]) / FOLDER
    pictures = {name: folder / f"{name}.{kind}" for name in ("front", "rounds", "hypervolume", "training", "networks")}
    written = []
    if any(front(run) for run in runs.values()):
        written.append(draw_front(runs, pictures["front"], compared))
    if any(tracks(run) for run in runs.values()):
        written.append(draw_rounds(runs, pictures["rounds"], compared))
    if any(hypervolume(run) for run in runs.values()):
        written.append(draw_hypervolume(runs, pictures["hypervolume"]))
    trained = {name: run for name, run in runs.items() if rounds_of(run, "final")}
    if trained:
        written.append(draw_training(trained, pictures["training"], compared))
    decided = {name: run for name, run in runs.items() if policy_rounds(run)}
    if decided:
        written.append(draw_policy(decided, folder / f"policy.{kind}"))
    retrained = {name: run for name, run in runs.items() if networks_of(run)}
    if retrained:
        written.append(draw_retraining(retrained, folder / f"retraining.{kind}"))
        written.append(write_validation(retrained, folder / "validation.md"))
    networks = {heading: found for name, run in runs.items() for heading, found in _networks(name, run, len(runs))}
    if networks:
        written.append(draw_networks(networks, pictures["networks"]))
    written += draw_pruning(runs, folder, kind)
    cells = {_joined(name, own, len(runs)): arch for name, run in runs.items() for own, arch in cells_of(run).items()}
    if cells:
        written.append(draw_cells(cells, folder / f"cells.{kind}"))
    written += _times({name: run for name, run in runs.items() if spans(run)}, folder, kind)
    if not written:
        raise RunDirectoryError(
            f"{directories[0]}: its rounds hold no figures that can be drawn", code="run-without-figures"
        )
    return written


def _times(runs: Mapping[str, Run], folder: Path, kind: str) -> list[Path]:
    """Of runs on a virtual network: a timeline each, and the latencies together."""
    written = [
        draw_timeline(run, folder / f"timeline{f'-{number}' if number > 1 else ''}.{kind}")
        for number, run in enumerate(runs.values(), 1)
    ]
    return [*written, draw_latency(runs, folder / f"latency.{kind}")] if runs else []


def named_runs(directories: Sequence[Path]) -> dict[str, Run]:
    """Runs by the name they have in the legends: their folder's, with as much of the path as tells them apart."""
    paths = [Path(directory).absolute() for directory in directories]
    found: dict[str, Run] = {}
    for directory, path in zip(directories, paths, strict=True):
        run = load(directory)
        ends = ("/".join(path.parts[-length:]) for length in range(1, len(path.parts)))
        others = [other for other in paths if other != path]
        label = next((end for end in ends if not any(str(other).endswith(f"/{end}") for other in others)), str(path))
        word = settings(run).get("model")
        found[f"{label} ({word})" if isinstance(word, str) and word.lower() not in label.lower() else label] = run
    return found


def _networks(name: str, run: Run, runs: int) -> list[tuple[str, dict[str, Any]]]:
    """High and Knee with a heading each; only choice blocks can be drawn, and only where a model can be had."""
    found: dict[str, tuple[list[str], dict[str, Any]]] = {}
    for pick, architecture in _architectures(run).items():
        if architecture.get("space") == "choice":
            key = "".join(str(branch) for branch in architecture["key"])
            found.setdefault(key, ([], architecture))[0].append(pick.title())
    return [
        (_heading(name if runs > 1 else "", picks, key, run), architecture)
        for key, (picks, architecture) in found.items()
    ]


def _architectures(run: Run) -> dict[str, dict[str, Any]]:
    """Pick -> architecture, from the result or from the models on offer while the search goes on."""
    if run.finished:
        candidates = run.result["candidates"]
        return {pick: found["architecture"] for pick in PICKS for found in candidates if pick in found["picks"]}
    try:
        return {pick: run.load_model(pick).architecture for pick in PICKS}
    except RunDirectoryError:
        return {}  # none on offer, or not of these names


def _heading(name: str, picks: Sequence[str], key: str, run: Run) -> str:
    text = f"{' and '.join(picks)}: {key}"
    figures = _figures_of(run, picks[0].lower())
    if "macs" in figures:
        text += f", {short(figures['macs'])} MACs"
    if "error" in figures:
        text += f", validation error {100 * figures['error']:.1f} %"
    if "test_error" in figures:
        text += f", test error {100 * figures['test_error']:.1f} %"
    return f"{name}, {text}" if name else text


def _joined(name: str, own: str, runs: int) -> str:
    """A network's name, with its run's where there are several."""
    return f"{name}, {own}" if runs > 1 else own


def _figures_of(run: Run, pick: str) -> Mapping[str, float]:
    """What the last round says of this pick."""
    last = rounds_of(run)[-1].get(pick)
    return last if isinstance(last, Mapping) else {}
