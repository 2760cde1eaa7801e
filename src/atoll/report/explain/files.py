"""The files that explain an evolved network: drawing, formulas, features used, and the exported network."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from atoll.algorithms.neat.expression import used_inputs
from atoll.errors import RunDirectoryError
from atoll.report.explain.drawing import drawing
from atoll.report.explain.formula import feature_names, formulas
from atoll.report.explain.numpy_file import numpy_file
from atoll.report.explain.onnx_file import onnx_bytes
from atoll.run.reader import Run
from atoll.store.files import replace_file
from atoll.store.models import Model


def explain(run: Run, pick: str, out: Path, onnx: bool = False) -> list[Path]:
    """Write network.svg, formula.txt, features.csv, network.py (and network.onnx) into `out`; the files written."""
    from atoll.spaces.genome import genome_of

    model = run.load_model(pick)
    arch = model.architecture
    if arch.get("space") != "genome":
        raise RunDirectoryError(
            f"{run.path}: '{pick}' is not an evolved network (space {arch.get('space')!r}); see `atoll show`",
            code="not-an-evolved-network",
        )
    network = genome_of(arch, model.weights)
    recurrent, steps = bool(arch["recurrent"]), int(arch["steps"])
    edges = tuple(arch["edges"])
    texts = {
        "network.svg": drawing(network, model.schema, recurrent, steps, bool(edges)),
        "formula.txt": formulas(network, model.schema, recurrent, steps, bool(edges)),
        "features.csv": _features(used_inputs(network), model, steps, _importance(run, pick)),
        "network.py": numpy_file(network, model.schema, recurrent, steps, int(arch["passes"]), edges),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        replace_file(out / name, text.encode())
    written = [out / name for name in texts]
    if onnx:
        if recurrent:
            raise RunDirectoryError(
                f"{run.path}: '{pick}' is recurrent; ONNX is written for feed-forward networks only",
                code="recurrent-onnx",
            )
        inputs = len(feature_names(model.schema))
        outputs = 1 if edges else len(model.schema.classes)
        replace_file(out / "network.onnx", onnx_bytes(network, inputs, outputs, edges))
        written.append(out / "network.onnx")
    return written


def _importance(run: Run, pick: str) -> dict[str, Any]:
    """Feature number -> loss of fitness without it, as the clients measured it at the end of the run."""
    if not run.finished:
        return {}
    for candidate in run.result["candidates"]:
        if pick in (candidate["id"], *candidate["picks"]):
            found: dict[str, Any] = candidate.get("about", {}).get("importance", {})
            return found
    return {}


def _features(used: list[int], model: Model, steps: int, importance: dict[str, Any]) -> str:
    """CSV, the most important first; a name that a spreadsheet would read as a formula gets an apostrophe."""
    names = feature_names(model.schema, steps)
    rows = [(place, names[place], importance.get(str(place))) for place in used]
    rows.sort(key=lambda row: (-(row[2] if row[2] is not None else -1.0), row[0]))
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(["feature", "name", "importance"])
    for place, name, value in rows:
        safe = f"'{name}" if name[:1] in "=+-@\t\r" else name
        writer.writerow([place, safe, "" if value is None else f"{value:.6f}"])
    return file.getvalue()
