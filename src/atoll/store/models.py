"""Model files: one safetensors file per trained network, named by content, with its architecture and the preparation
of raw rows."""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_tensors
from safetensors.numpy import save as save_tensors

from atoll.core import wire
from atoll.core.messages import Schema, Tensors
from atoll.errors import RunDamaged
from atoll.preparation.value import Preparation, parse
from atoll.store.files import read_file, replace_file

if TYPE_CHECKING:
    import torch


WEIGHTS, STATISTICS = "weights/", "statistics/"


@dataclass(frozen=True)
class Model:
    """An architecture with its trained weights, calibrated batch-norm statistics if it has any, and the preparation of
    raw rows."""

    architecture: dict[str, Any]
    weights: Tensors
    statistics: Tensors
    preparation: Preparation

    @property
    def schema(self) -> Schema:
        return self.preparation.row_schema

    def module(self) -> torch.nn.Module:
        """An ordinary torch module in evaluation mode, for a batch of prepared rows, or a single row or image."""
        from atoll.training.calibration import TrainedNetwork, fixed_module

        return TrainedNetwork(fixed_module(self.architecture, self.weights, self.statistics), len(self.schema.shape))


def save_model(folder: Path, model: Model) -> str:
    """Write a model, unless its file exists already, and return the file name."""
    tensors = {WEIGHTS + name: model.weights[name] for name in model.weights}
    tensors |= {STATISTICS + name: model.statistics[name] for name in model.statistics}
    # One metadata key with canonical text: with several keys, their order in the file is undefined.
    about = wire.canonical({"architecture": model.architecture, "preparation": model.preparation.plain()})
    data = save_tensors(tensors, metadata={"atoll": about})
    name = f"{hashlib.sha256(data).hexdigest()[:32]}.safetensors"
    path = folder / name
    if not path.is_file() or path.read_bytes() != data:
        replace_file(path, data)
    return name


def load_model(path: Path) -> Model:
    """Read a model; `RunDamaged` if the content does not match the file name."""
    data = read_file(path)
    if hashlib.sha256(data).hexdigest()[:32] != path.stem:
        raise RunDamaged(
            f"{path}: the content does not match the file's name; the file was modified or truncated",
            code="wrong-checksum",
        )
    try:
        tensors = load_tensors(data)
        (length,) = struct.unpack("<Q", data[:8])
        about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["atoll"])
        preparation, architecture = about["preparation"], about["architecture"]
    except (SafetensorError, ValueError, KeyError, TypeError, struct.error) as problem:
        raise RunDamaged(f"{path}: not a model file of Atoll ({problem})", code="not-a-model") from problem
    return Model(
        architecture,
        Tensors({name.removeprefix(WEIGHTS): array for name, array in tensors.items() if name.startswith(WEIGHTS)}),
        Tensors({n.removeprefix(STATISTICS): array for n, array in tensors.items() if n.startswith(STATISTICS)}),
        parse(preparation, str(path)),
    )
