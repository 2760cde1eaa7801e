"""Feature stability: in how many runs of a sweep the network that was found reads each feature."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atoll.algorithms.neat.expression import used_inputs
from atoll.errors import RunDirectoryError
from atoll.preparation.answers import guarded
from atoll.report.explain.files import evolved, importance
from atoll.report.explain.formula import feature_names
from atoll.run.reader import Run
from atoll.store.files import replace_file


@dataclass(frozen=True)
class FeatureUse:
    """One feature over all runs. Importance is of the runs that read it and have measured it, else None."""

    feature: int
    name: str
    used: int  # runs whose network reads it
    runs: int
    importance: float | None
    deviation: float | None  # of a sample; None for less than two values


def stability(runs: Sequence[Run], pick: str | None = None) -> list[FeatureUse]:
    """Every feature, those that most runs use first; `pick` is the network of each run, default the recommended one."""
    finished = [run for run in runs if run.finished]
    if not finished:
        raise RunDirectoryError(
            f"{runs[0].path.parent}: no run is finished; continue them with `atoll sweep`", code="no-finished-run"
        )
    names: list[str] = []
    values: dict[int, list[float | None]] = {}
    for run in finished:
        own = pick or run.recommended
        model = run.load_model(own)
        network = evolved(run, own, model)
        known = feature_names(model.schema, int(model.architecture["steps"]))
        if names and known != names:
            raise RunDirectoryError(
                f"{run.path}: its features differ from those of {finished[0].path}; give the runs of one sweep",
                code="different-features",
            )
        names = known
        measured = importance(run, own)
        for place in used_inputs(network):
            values.setdefault(place, []).append(measured.get(str(place)))
    found = [_use(place, name, values.get(place, []), len(finished)) for place, name in enumerate(names)]
    return sorted(found, key=lambda one: (-one.used, -(one.importance or 0.0), one.feature))


def write_stability(found: Sequence[FeatureUse], path: Path) -> Path:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["feature", "name", "runs_using", "runs", "mean_importance", "deviation"])
    for one in found:
        numbers = ["" if value is None else f"{value:.6f}" for value in (one.importance, one.deviation)]
        writer.writerow([one.feature, guarded(one.name), one.used, one.runs, *numbers])
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, file.getvalue().encode())
    return path


def _use(place: int, name: str, values: Sequence[float | None], runs: int) -> FeatureUse:
    known = [value for value in values if value is not None]
    mean = float(np.mean(known)) if known else None
    deviation = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return FeatureUse(place, name, len(values), runs, mean, deviation)
