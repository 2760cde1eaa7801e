"""Torch modules, built once per architecture; weights are copied in and out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import nn

from atoll.core.messages import Array, Tensors
from atoll.spaces import build, canonical, view, whole


def network(arch: Mapping[str, Any], device: str = "cpu") -> nn.Module:
    """The module of this architecture. Calls share one object: load weights before use, and store nothing in it.

    A worker runs the tasks of many clients with few architectures, and building a module takes longer than a training
    step. Slices of one supernet are views into the same module: use one at a time.
    """
    return _network(canonical(arch), device)


@lru_cache(maxsize=16)
def _network(description: str, device: str) -> nn.Module:
    arch = json.loads(description)
    larger = whole(arch)
    if larger is not None:
        return view(network(larger, device), arch)
    module: nn.Module = build(arch, device)
    return module.to(memory_format=torch.channels_last)  # type: ignore[call-overload, no-any-return]


def load(module: nn.Module, weights: Mapping[str, Array]) -> list[nn.Parameter]:
    """Copy the weights into the module's parameters of the same names, and return those parameters.

    Other parameters keep their values.
    """
    parameters = dict(module.named_parameters())
    chosen = []
    for name, array in weights.items():
        parameter = parameters.get(name)
        if parameter is None:
            raise ValueError(f"weights {name!r}: this {type(module).__name__} has no parameter of that name")
        if tuple(parameter.shape) != array.shape:
            raise ValueError(f"weights {name!r} have shape {array.shape}, the parameter has {tuple(parameter.shape)}")
        _fill(parameter, array)
        chosen.append(parameter)
    return chosen


def values(names: Mapping[str, Any], parameters: list[nn.Parameter]) -> Tensors:
    """Copies of the parameters' current values, under these names."""
    return Tensors(
        {
            name: np.array(parameter.detach().cpu().numpy(), order="C")
            for name, parameter in zip(names, parameters, strict=True)
        }
    )


def _fill(parameter: nn.Parameter, array: Array) -> None:
    if parameter.device.type == "cpu":
        # Through numpy, because torch warns about read-only arrays, and all arrays of `Tensors` are read-only.
        np.copyto(parameter.detach().numpy(), array)
    else:
        with torch.no_grad():
            parameter.copy_(torch.tensor(array))
