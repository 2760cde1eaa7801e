"""What figures say of their runs: the title names method, data, seed and rounds; and which runs belong together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from atoll.errors import RunDamaged
from atoll.report.figures.canvas import INK, plain
from atoll.run.reader import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 4  # methods, data sets or seeds that are named


def entitle(figure: Figure, title: str, runs: Mapping[str, Run]) -> None:
    """The title of a figure, and below it what was run."""
    figure.suptitle("\n".join([title, *([about(runs.values())] if runs else [])]), fontsize=11, color=INK)


def about(runs: Iterable[Run]) -> str:
    """`realtime on digits, seed 1, 24 rounds`; of several runs what they share, and otherwise the range."""
    known = list(runs)
    methods = _listed(str(run.manifest.get("method", "")) for run in known)
    data = _listed(str(run.manifest.get("source", "")) for run in known)
    seeds = sorted({int(run.manifest["seed"]) for run in known if "seed" in run.manifest})
    rounds = sorted({len(run.rounds) for run in known})
    parts = [f"{methods} on {data}" if data else methods]
    if seeds:
        parts.append(f"seed {seeds[0]}" if len(seeds) == 1 else f"{len(seeds)} seeds")
    words = f"{rounds[0]:,}" if len(rounds) == 1 else f"{rounds[0]:,} to {rounds[-1]:,}"
    parts.append(f"{words} round{'' if rounds == [1] else 's'}")
    return plain(", ".join(part for part in parts if part), 110)


def _listed(words: Iterable[str]) -> str:
    different = [word for word in dict.fromkeys(words) if word]
    more = len(different) - MOST
    return ", ".join(different[:MOST]) + (f" and {more} more" if more > 0 else "")


def apart(runs: Mapping[str, Run], key: Callable[[Run], Hashable]) -> dict[Any, dict[str, Run]]:
    """Runs in groups that can share an axis, in the order of their first run."""
    groups: dict[Any, dict[str, Run]] = {}
    for name, run in runs.items():
        groups.setdefault(key(run), {})[name] = run
    return groups


def data_of(run: Run) -> str:
    """The data of a run: errors on different data have no common axis."""
    return str(run.manifest.get("source", ""))


def repetitions(runs: Mapping[str, Run]) -> dict[str, list[Run]]:
    """Runs that differ in nothing but the seed, under one name; others each under their own."""
    groups: dict[str, list[str]] = {}
    for name, run in runs.items():
        groups.setdefault(_settings(run) or name, []).append(name)
    return {
        names[0] if len(names) == 1 else f"{_common(names)} ({len(names)} seeds)": [runs[name] for name in names]
        for names in groups.values()
    }


def _settings(run: Run) -> str:
    """The settings of a run without its seed, as a text to compare."""
    try:
        table = {name: value for name, value in run.config.items() if name not in ("seed", "engine")}
    except (OSError, RunDamaged):
        return ""
    return repr(sorted(table.items(), key=lambda pair: pair[0])) if "data" in table else ""


def _common(names: list[str]) -> str:
    """What the names of repetitions share: `fedrl/seed-1` and `fedrl/seed-2` are fedrl."""
    start = names[0]
    while start and not all(name.startswith(start) for name in names):
        start = start[:-1]
    word = start.rstrip("-_/ ")
    return word.removesuffix("seed").rstrip("-_/ ") or str(names[0])
