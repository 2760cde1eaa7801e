"""The cost of a network: multiply-accumulates, parameters, bytes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Cost:
    """`macs`: multiply-accumulates of convolutions and linear layers in the forward pass of one sample."""

    macs: int
    params: int
    bytes: int


def training_macs(cost: Cost, rows: int, epochs: int = 1, extra_passes: int = 0) -> int:
    """Multiply-accumulates of training on these rows: a training pass counts as three forward ones.

    `extra_passes` are forward passes over the same rows, such as an evaluation after the training.
    """
    return cost.macs * rows * (3 * epochs + extra_passes)


def canonical(arch: Mapping[str, Any]) -> str:
    """The same JSON text for equal architectures; the key of every cache."""
    return json.dumps(arch, sort_keys=True, separators=(",", ":"))


def measured_cost(module: nn.Module, shape: tuple[int, ...]) -> Cost:
    """The cost counted by running the module once on its device; on the meta device nothing is computed."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    rows = 2  # batch norm needs more than one row
    parameters = list(module.parameters())
    device = parameters[0].device if parameters else torch.device("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(torch.empty((rows, *shape), device=device))
    params = sum(parameter.numel() for parameter in parameters)
    return Cost(
        macs=counter.get_total_flops() // (2 * rows),  # a multiply-accumulate is two operations
        params=params,
        bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
    )
