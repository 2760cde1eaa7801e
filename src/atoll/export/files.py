"""Export: a trained network as files that need no Atoll.

NAME.onnx          the network with its preparation in front; `.pt2` is torch's own form of it
NAME.safetensors   the weights alone, with the architecture and the preparation in NAME.json
NAME.py            an evolved network as plain NumPy

Beside each: NAME.json (the preparation of raw rows and what the output is), NAME.md (the model card) and, for ONNX,
NAME_predict.py. Nothing is reported as written before the files, read again, have answered made-up raw rows as the
network does; nothing is left behind by an export that fails.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import logging
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from atoll.core.messages import Array
from atoll.errors import ConfigError, ExportError
from atoll.export.card import CardFacts, model_card
from atoll.export.graph import outputs
from atoll.export.predictor import Predictor
from atoll.export.samples import sample_rows
from atoll.extras import require
from atoll.preparation import answers, cells, images, tables
from atoll.preparation.answers import ExportedNetwork, network_input
from atoll.store.models import Model, load_model, save_model

TOLERANCE = 1e-5
PROGRAM = '''"""Answers raw rows with the network beside this file. Needs numpy and onnxruntime; written by Atoll.

python net_predict.py new.csv -o answers.csv
"""'''


@dataclass(frozen=True)
class Exported:
    """The files of an export, and how far their answers are from the network's."""

    files: list[Path]
    difference: float
    rows: int


def export(model: Model, path: Path, facts: CardFacts, statistics: Any = None) -> Exported:
    """Write a network to `path`, in the format of its suffix."""
    writer = WRITERS.get(path.suffix.lower())
    if writer is None:
        raise ConfigError(f"--out {str(path)!r}: end the name with {', '.join(WRITERS)}", code="unknown-export-format")
    predictor = Predictor(model, statistics)
    if not path.parent.is_dir():
        raise ConfigError(
            f"--out {str(path)!r}: the folder {path.parent} does not exist; create it", code="no-such-folder"
        )
    with _aside(path.parent) as folder:
        target = folder / path.name
        answer = writer(predictor, target)
        data = target.read_bytes()
        about: dict[str, Any] = {
            "networks": {path.name: hashlib.sha256(data).hexdigest()},
            "output": predictor.kind,
            "atoll": version("atoll"),
            "preparation": predictor.preparation.plain(),
            "architecture": model.architecture,
        }
        about["networks"] |= _other_formats(path, about)
        target.with_suffix(".json").write_text(json.dumps(about, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        difference, rows = _compared(predictor, answer, path)
        size = len(data)
        target.with_suffix(".md").write_text(
            model_card(predictor, facts, path.name, size, difference, rows), encoding="utf-8"
        )
        if path.suffix.lower() == ".onnx":
            target.with_name(f"{path.stem}_predict.py").write_text(predict_program(), encoding="utf-8")
        names = sorted(file.name for file in folder.iterdir())
        for name in names:  # the network last: its presence marks a complete export
            if name != path.name:
                os.replace(folder / name, path.with_name(name))
        os.replace(target, path)
    return Exported([path, *(path.with_name(name) for name in names if name != path.name)], difference, rows)


def predict_program() -> str:
    """The modules that read raw rows and run an exported network, joined to one file without Atoll."""
    imports, bodies = set(), []
    for module in (cells, tables, images, answers):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        lines = source.splitlines()
        for node in ast.parse(source).body:
            imported = isinstance(node, (ast.Import, ast.ImportFrom))
            if imported and not ast.unparse(node).startswith(("from atoll", "from __future__")):
                imports.add(ast.unparse(node))
            if imported or (isinstance(node, ast.Expr) and node.lineno == 1):
                for line in range(node.lineno - 1, node.end_lineno or node.lineno):
                    lines[line] = ""
        bodies.append("\n".join(lines).strip())
    head = [PROGRAM, "from __future__ import annotations", "\n".join(sorted(imports))]
    return "\n\n".join(head) + "\n\n" + "\n\n\n".join(bodies) + "\n"


def _other_formats(path: Path, about: dict[str, Any]) -> dict[str, str]:
    """Files of the same network in other formats, which have the same JSON file."""
    try:
        there = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        same = all(there[key] == about[key] for key in ("output", "preparation", "architecture"))
        return {name: digest for name, digest in there["networks"].items() if name != path.name} if same else {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


@contextlib.contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder for unfinished files, on the same disk; it is removed in any case."""
    try:
        made = Path(tempfile.mkdtemp(prefix=".atoll-export-", dir=folder))
    except OSError as problem:
        raise ConfigError(
            f"--out: {folder}: {problem.strerror or problem}; choose a writable folder", code="folder-not-writable"
        ) from None
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _compared(predictor: Predictor, answer: Callable[[Any], Array], path: Path) -> tuple[float, int]:
    """The largest difference between the exported file's outputs and the network's, on made-up raw rows."""
    rows = sample_rows(predictor.preparation)
    expected = predictor(rows).values
    found = answer(rows)
    scale = np.maximum(1.0, np.abs(expected))
    difference = float(np.max(np.abs(found - expected) / scale))
    ordered = np.sort(expected, axis=1)
    clear = ordered[:, -1] - ordered[:, -2] > 2 * TOLERANCE * scale.max(axis=1)  # equal outputs may be ordered freely
    same = bool((found.argmax(axis=1) == expected.argmax(axis=1))[clear].all())
    if not np.isfinite(difference) or difference > TOLERANCE or not same:
        raise ExportError(
            f"{path.name}: the exported network differs from the original by {difference:.2g} on {len(expected)} "
            f"made-up rows, more than {TOLERANCE:g}; nothing was written",
            code="export-differs",
        )
    return difference, len(expected)


def _example(predictor: Predictor) -> torch.Tensor:
    """The numbers of two rows; a batch of one would be taken for the only size."""
    rows = sample_rows(predictor.preparation, 2)
    numbers, _ = network_input(predictor.preparation.plain(), rows)
    return torch.from_numpy(numbers)


ROWS = {0: torch.export.Dim("rows", min=1)}


def _onnx(predictor: Predictor, path: Path) -> Callable[[Any], Array]:
    require("export")
    with _quiet():
        program = torch.onnx.export(
            predictor.module,
            (_example(predictor),),
            input_names=["rows"],
            output_names=[predictor.kind],
            dynamic_shapes=(ROWS,),
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    assert program is not None
    path.write_bytes(program.model_proto.SerializeToString())

    def answer(rows: Any) -> Array:
        found: Array = ExportedNetwork(path).predict(rows).values
        return found

    return answer


def _pt2(predictor: Predictor, path: Path) -> Callable[[Any], Array]:
    with _quiet():
        program = torch.export.export(predictor.module, (_example(predictor),), dynamic_shapes=(ROWS,))
        torch.export.save(program, path)

    def answer(rows: Any) -> Array:
        numbers, _ = network_input(predictor.preparation.plain(), rows)
        return outputs(torch.export.load(path).module(), numbers)

    return answer


def _safetensors(predictor: Predictor, path: Path) -> Callable[[Any], Array]:
    name = save_model(path.parent, predictor.model)
    again = load_model(path.parent / name)
    os.replace(path.parent / name, path)
    return lambda rows: Predictor(again)(rows).values


def _numpy(predictor: Predictor, path: Path) -> Callable[[Any], Array]:
    from atoll.export.numpy_file import numpy_file

    model = predictor.model
    if model.architecture.get("space") != "genome":
        raise ConfigError(
            f"--out {path.name}: plain NumPy is for evolved networks (nevofed); write .onnx, .pt2 or .safetensors",
            code="unknown-export-format",
        )
    text = numpy_file(model)
    path.write_text(text, encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(text, str(path), "exec"), names)  # our own text, which the user will run as well

    def answer(rows: Any) -> Array:
        numbers, _ = network_input(predictor.preparation.plain(), rows)
        found: Array = names["outputs"](numbers)
        return found

    return answer


WRITERS: dict[str, Callable[[Predictor, Path], Callable[[Any], Array]]] = {
    ".onnx": _onnx,
    ".pt2": _pt2,
    ".safetensors": _safetensors,
    ".py": _numpy,
}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporters' own progress, warnings and log lines."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
