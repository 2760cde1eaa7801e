"""The files that explain a network: its rates on test rows; of an evolved one also drawing, formulas, features used,
and a NumPy file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from atoll.algorithms.neat.expression import used_inputs
from atoll.algorithms.neat.population import Population
from atoll.errors import RunDirectoryError
from atoll.export.numpy_file import numpy_file
from atoll.preparation.answers import guarded
from atoll.report.explain.drawing import drawing
from atoll.report.explain.formula import Formulas, feature_names
from atoll.report.explain.measures import measures
from atoll.run.reader import Run
from atoll.store.files import replace_file
from atoll.store.models import Model


def explain(run: Run, pick: str, out: Path) -> list[Path]:
    """Write measures.csv and, for an evolved network, network.svg, formula.txt, features.csv and network.py into `out`;
    the files written."""
    model = run.load_model(pick)
    rates = measures(run.candidate(pick), run.classes) if run.finished else ""
    texts = {"measures.csv": rates} if rates else {}
    if model.architecture.get("space") == "genome" or not texts:
        texts |= _explained(run, pick, model)
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        replace_file(out / name, text.encode())
    return [out / name for name in texts]


def _explained(run: Run, pick: str, model: Model) -> dict[str, str]:
    arch, network = model.architecture, evolved(run, pick, model)
    recurrent, steps, bins = bool(arch["recurrent"]), int(arch["steps"]), bool(arch["edges"])
    texts = {
        "network.svg": drawing(network, model.schema, recurrent, steps, bins),
        "formula.txt": Formulas(network, model.preparation, recurrent, steps, bins).text(),
        "features.csv": _features(used_inputs(network), model, steps, importance(run, pick)),
    }
    return texts | ({"network.py": numpy_file(model)} if model.preparation.statistics is not None else {})


def evolved(run: Run, pick: str, model: Model) -> Population:
    """The genome of an evolved network; `RunDirectoryError` if it is of another kind."""
    from atoll.spaces.genome import genome_of

    if model.architecture.get("space") != "genome":
        raise RunDirectoryError(
            f"{run.path}: '{pick}' is not an evolved network (space {model.architecture.get('space')!r}); "
            "`atoll export` writes a model card of any network",
            code="not-an-evolved-network",
        )
    return genome_of(model.architecture, model.weights)


def importance(run: Run, pick: str) -> dict[str, Any]:
    """Feature number -> loss of fitness without it, as the clients measured it at the end of the run."""
    found: dict[str, Any] = run.candidate(pick).get("about", {}).get("importance", {}) if run.finished else {}
    return found


def _features(used: list[int], model: Model, steps: int, measured: dict[str, Any]) -> str:
    """CSV, the most important first; a name that a spreadsheet would read as a formula gets an apostrophe."""
    names = feature_names(model.schema, steps)
    rows = [(place, names[place], measured.get(str(place))) for place in used]
    rows.sort(key=lambda row: (-(row[2] if row[2] is not None else -1.0), row[0]))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["feature", "name", "importance"])
    for place, name, value in rows:
        writer.writerow([place, guarded(name), "" if value is None else f"{value:.6f}"])
    return file.getvalue()
