"""Weights from files: those that a run left for a network, and those that a user brings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors

from atoll.core.messages import Tensors
from atoll.errors import ConfigError, nearest
from atoll.spaces import canonical
from atoll.store.models import WEIGHTS, load_model


def found_weights(path: str | Path, architecture: dict[str, Any]) -> Tensors:
    """The weights in a run's model file for this network.

    The file holds this very network, or one with the same layers that are wider: then the filters of smallest L2 norm
    are left out, layer by layer, which is how a width multiplier goes on from the weights of the start network.
    """
    from atoll.spaces.pruned.pruning import pruned_to

    try:
        model = load_model(Path(path))
    except OSError as problem:
        raise ConfigError(
            f"start = {str(path)!r}: cannot be read ({problem.strerror or problem})", code="file-unreadable"
        ) from None
    if canonical(model.architecture) == canonical(architecture):
        return model.weights
    weights = pruned_to(model.architecture, model.weights, architecture)
    if weights is None:
        raise ConfigError(
            f"start = {str(path)!r}: it holds another network than the one that is to go on from it; train that one "
            "from scratch, or name the file of the same network",
            code="weights-of-other-network",
        )
    return weights


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
