"""The space of choice blocks (Zhu & Jin, Real-time Federated Evolutionary NAS, section III-A).

A master is a stem, blocks of four branches each, global average pooling and a linear head. A sub-model uses one branch
per block. Both have the same parameter names, so the weights of a sub-model are a slice of the master's. The module
`plan` documents the format of an architecture, `layers` the branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError
from atoll.spaces.choice.keys import BRANCHES, Key, check_key, from_bits, random_keys, to_bits
from atoll.spaces.choice.layers import make_branch, make_layer
from atoll.spaces.choice.plan import PAPER_CHANNELS, ChoicePlan, key_of, plan
from atoll.spaces.choice.table import cost, executed_blocks, executed_macs, least_macs, names, shapes
from atoll.spaces.initial import kaiming_uniform

__all__ = [
    "BRANCHES",
    "PAPER_CHANNELS",
    "ChoiceNetwork",
    "Key",
    "blocks",
    "build",
    "check_key",
    "cost",
    "executed_blocks",
    "executed_macs",
    "from_bits",
    "initial",
    "least_macs",
    "names",
    "random_keys",
    "shapes",
    "sub_model",
    "to_bits",
]


class ChoiceNetwork(nn.Module):
    """A master (all branches of all blocks) or, with a key, the sub-model of that key."""

    def __init__(self, plan: ChoicePlan, key: Key | None = None) -> None:
        super().__init__()
        self.branch_names, self.key = plan.branch_names, key
        self.stem = make_branch(plan.stem, plan.norm)
        self.blocks = nn.ModuleList()
        for number, block in enumerate(plan.blocks):
            taken = range(BRANCHES) if key is None else (key[number],)
            self.blocks.append(
                nn.ModuleDict({plan.branch_names[branch]: make_branch(block[branch], plan.norm) for branch in taken})
            )
        self.head = make_layer(plan.head)

    def forward(self, x: Tensor, key: Sequence[int] | None = None) -> Tensor:
        """The outputs for this key. A master requires a key; a sub-model has one."""
        chosen = self.key if key is None else check_key(key, len(self.blocks))
        if chosen is None:
            raise ArchitectureError(
                "the master runs one branch per block: pass a key to forward()", code="branch-key-needed"
            )
        x = self.run_stem(x)
        for number, branch in enumerate(chosen):
            x = self.run_block(number, branch, x)
        return self.run_head(x)

    def run_stem(self, x: Tensor) -> Tensor:
        y: Tensor = self.stem(x)
        return y

    def run_block(self, number: int, branch: int, x: Tensor) -> Tensor:
        """One branch of one block. `x` is never modified, but may be returned."""
        y: Tensor = self.blocks[number][self.branch_names[branch]](x)  # type: ignore[index]
        return y

    def run_head(self, x: Tensor) -> Tensor:
        """Global average pooling (images only), then the classifier."""
        y: Tensor = self.head(x.mean(dim=(2, 3)) if x.dim() == 4 else x)
        return y


def build(arch: Mapping[str, Any]) -> ChoiceNetwork:
    """The master or, with a "key", the sub-model."""
    return ChoiceNetwork(plan(arch), key_of(arch))


def initial(arch: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
    """Initial weights by the general rule, without building a module for their shapes."""
    return kaiming_uniform(shapes(arch), rng)


def blocks(arch: Mapping[str, Any]) -> int:
    """The number of choice blocks, which is the length of a key."""
    return len(plan(arch).blocks)


def sub_model(arch: Mapping[str, Any], key: Sequence[int]) -> dict[str, Any]:
    """The architecture of the sub-model with this key."""
    return {**arch, "key": list(check_key(key, blocks(arch)))}
