"""Networks ready for use: built once per architecture, weights copied in and out."""

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
    """The module of this architecture, the same object each time: load weights before use, keep nothing in it.

    A worker plays many clients with few architectures; building one takes longer than a training step. Where every
    task brings another slice of one supernet, each is a view into the same module: use one at a time.
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
    """Copy the weights into the module's parameters of these names, in place; returns those parameters.

    Parameters that are not named keep their values.
    """
    parameters = dict(module.named_parameters())
    chosen = []
    for name, array in weights.items():
        parameter = parameters.get(name)
        if parameter is None:
            raise ValueError(f"weights {name!r} fit no parameter of this {type(module).__name__}")
        if tuple(parameter.shape) != array.shape:
            raise ValueError(f"weights {name!r} have shape {array.shape}, the parameter {tuple(parameter.shape)}")
        _fill(parameter, array)
        chosen.append(parameter)
    return chosen


def values(names: Mapping[str, Any], parameters: list[nn.Parameter]) -> Tensors:
    """The parameters' present values under these names, copied out."""
    return Tensors(
        {
            name: np.array(parameter.detach().cpu().numpy(), order="C")
            for name, parameter in zip(names, parameters, strict=True)
        }
    )


def _fill(parameter: nn.Parameter, array: Array) -> None:
    if parameter.device.type == "cpu":
        # through numpy, because torch warns of arrays that are read-only, as all arrays of `Tensors` are
        np.copyto(parameter.detach().numpy(), array)
    else:
        with torch.no_grad():
            parameter.copy_(torch.tensor(array))
