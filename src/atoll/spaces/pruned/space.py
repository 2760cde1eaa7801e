"""Networks described layer by layer. Pruning changes their widths, and a client needs only the description.

    {"space": "widths", "input": [C, H, W] or [F], "classes": N,
     "layers": {"features.0": {"kind": "convolution", "inputs": 3, "outputs": 32, "kernel": [3, 3], ...}, ...},
     "program": [{"op": "layer", "of": [0], "name": "features.0"}, {"op": "relu", "of": [1]}, ...]}

`layers` holds the layers with parameters (module `layers`) under their names in the traced module, so that its state
dict fits. `program` lists the operations (module `operations`) and the values they read: value 0 is the input, value n
the result of the n-th node, and the last value is the output. `describe` derives a description from any torch module
that `torch.fx` can trace; `build` interprets it, so no code is sent or generated.

Batch norm uses the statistics of the batch, as everywhere in Atoll (`norm`): affine parameters of the traced module are
retained, its running averages are not.
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
    """The network of a description, with the parameter names of the traced module."""
    return Network(read(arch))


def cost(arch: Mapping[str, Any]) -> Cost:
    """The cost computed from shapes: equal to that counted in a run, and fast enough for searching widths."""
    plan = read(arch)
    params = sum(layer.parameters() for layer in plan.layers.values())
    return Cost(macs=sum(layer.macs(after) for _, layer, _, after in plan.uses()), params=params, bytes=4 * params)
