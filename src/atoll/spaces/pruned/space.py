"""Networks described layer by layer: what pruning changes are the widths, and a client needs nothing else.

    {"space": "widths", "input": [C, H, W] or [F], "classes": N,
     "layers": {"features.0": {"kind": "convolution", "inputs": 3, "outputs": 32, "kernel": [3, 3], ...}, ...},
     "program": [{"op": "layer", "of": [0], "name": "features.0"}, {"op": "relu", "of": [1]}, ...]}

`layers` holds what has parameters (`widths_layers`), under the names of the module it was traced from, so that the
module's state dict fits. `program` says what is applied to which values: value 0 is the input, value n that of the n-th
node, and the last value is the answer (`widths_operations`). `describe` makes such a description of
any torch module that `torch.fx` can follow; `build` turns it into a network by interpreting it: no code travels, and
none is generated.

Batch norm normalises by the statistics of the batch, as everywhere in Atoll (`norm`): affine parameters of the traced
module are kept, its running averages are not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from atoll.spaces.cost import Cost
from atoll.spaces.pruned.network import Network
from atoll.spaces.pruned.plan import read
from atoll.spaces.pruned.trace import describe, from_fixed

__all__ = ["build", "cost", "describe", "from_fixed"]


def build(arch: Mapping[str, Any]) -> nn.Module:
    """The network of a description, or an `ArchitectureError`. Parameters have the names of the traced module's."""
    return Network(read(arch))


def cost(arch: Mapping[str, Any]) -> Cost:
    """By arithmetic, from shapes: equal to what a run would count, and fast enough to search widths with."""
    plan = read(arch)
    params = sum(layer.parameters() for layer in plan.layers.values())
    return Cost(macs=sum(layer.macs(after) for _, layer, _, after in plan.uses()), params=params, bytes=4 * params)
