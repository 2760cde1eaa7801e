"""Weights that a user brings: a safetensors file, checked against the network it is meant for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from atoll.errors import ConfigError, nearest
from atoll.messages import Tensors
from atoll.store.models import WEIGHTS


def given_weights(path: str | Path, shapes: Mapping[str, tuple[int, ...]], setting: str = "weights") -> Tensors:
    """The tensors of these names and shapes from a file, as float32; a file that does not fit is a `ConfigError`.

    The file is a plain safetensors file of a network's parameters, or a model of a run directory; the directory of a
    finished run stands for its most accurate network. Tensors that the network has no place for, such as running
    averages of batch norm, are left aside.
    """
    place = f"{setting} = {str(path)!r}"
    try:
        found = load_tensors(_file(Path(path)).read_bytes())
    except OSError as problem:
        raise ConfigError(
            f"{place}: cannot be read ({problem.strerror or problem}); name a .safetensors file", code="file-unreadable"
        ) from None
    except (SafetensorError, ValueError, TypeError, KeyError, StopIteration) as problem:
        raise ConfigError(
            f"{place}: not a safetensors file ({' '.join(str(problem).split())})", code="file-damaged"
        ) from None
    if any(name.startswith(WEIGHTS) for name in found):
        found = {name.removeprefix(WEIGHTS): array for name, array in found.items() if name.startswith(WEIGHTS)}
    for name, shape in shapes.items():
        if name not in found:
            raise ConfigError(
                f"{place}: it has no tensor {name!r}, which the network needs; {nearest(name, found)}",
                code="tensor-missing",
            )
        if found[name].shape != shape:
            raise ConfigError(
                f"{place}: tensor {name!r} has the shape {list(found[name].shape)}, the network needs {list(shape)}; "
                "give the weights of this very network, or set the model to theirs",
                code="tensor-shape-differs",
            )
    return Tensors({name: found[name].astype("float32") for name in shapes})


def _file(path: Path) -> Path:
    if not path.is_dir():
        return path
    candidates = json.loads((path / "result.json").read_text(encoding="utf-8"))["candidates"]
    best = next(found for found in candidates if "high" in found["picks"])
    return path / str(best["weights"])
