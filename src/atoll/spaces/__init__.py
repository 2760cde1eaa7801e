"""Search spaces: an architecture is plain JSON data. Its key "space" names the module that builds it, an entry point of
the group `atoll.spaces`.

A space module provides `build(arch) -> torch.nn.Module` and may override the general rules with
`cost(arch) -> Cost` and `initial(arch, rng) -> Tensors`. Names from `named_parameters()` are the names of `Tensors`.
A space whose networks are slices of a larger network may provide `whole(arch)`, the architecture of that network or
None, and `view(module, arch)`, the slice as a view into a module of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from atoll import lazy
from atoll.core.messages import Tensors
from atoll.registry import find
from atoll.spaces.cost import Cost, canonical, measured_cost, training_macs
from atoll.spaces.initial import kaiming_uniform

if TYPE_CHECKING:
    from torch import nn
else:
    __getattr__ = lazy.submodules(__name__)

Architecture = Mapping[str, Any]

__all__ = [
    "Architecture",
    "Cost",
    "build",
    "canonical",
    "cost",
    "initial",
    "skeleton",
    "training_macs",
    "view",
    "whole",
]

_costs: dict[str, Cost] = {}


def build(arch: Architecture, device: str = "cpu") -> nn.Module:
    """The network of this architecture with all parameters zero; load weights before use.

    Torch's constructors draw initial weights from the global random state. Building on the meta device first leaves
    that state unchanged and is faster.
    """
    import torch

    module = skeleton(arch).to_empty(device=device)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    return module


def skeleton(arch: Architecture) -> nn.Module:
    """The network on the meta device, without memory for its parameters: for names, shapes and costs."""
    import torch

    with torch.device("meta"):
        module: nn.Module = _space(arch).build(arch)
    return module


def initial(arch: Architecture, rng: np.random.Generator) -> Tensors:
    """Initial weights, drawn from `rng` only."""
    own = getattr(_space(arch), "initial", None)
    if own is not None:
        weights: Tensors = own(arch, rng)
        return weights
    return kaiming_uniform({name: tuple(p.shape) for name, p in skeleton(arch).named_parameters()}, rng)


def cost(arch: Architecture) -> Cost:
    """The MACs of one sample's forward pass and the size of the weights; cached per architecture."""
    key = canonical(arch)
    if key not in _costs:
        own = getattr(_space(arch), "cost", None)
        _costs[key] = own(arch) if own is not None else measured_cost(skeleton(arch), tuple(arch["input"]))
    return _costs[key]


def whole(arch: Architecture) -> Architecture | None:
    """The larger network that this one is a slice of, if its space supports views; otherwise None."""
    own = getattr(_space(arch), "whole", None)
    larger: Architecture | None = own(arch) if own is not None else None
    return larger


def view(module: nn.Module, arch: Architecture) -> nn.Module:
    """This network as a view into a module of its `whole`; parameters are shared."""
    part: nn.Module = _space(arch).view(module, arch)
    return part


def _space(arch: Architecture) -> ModuleType:
    space: ModuleType = find("spaces", str(arch.get("space")))
    return space
