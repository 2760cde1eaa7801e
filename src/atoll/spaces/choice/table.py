"""Parameter names, shapes and costs of sub-models from a table per block, without building modules.

The server needs them for every key of every round; building modules is hundreds of times slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from atoll.spaces.choice.keys import BRANCHES, check_key
from atoll.spaces.choice.layers import Branch
from atoll.spaces.choice.plan import ChoicePlan, key_of, plan
from atoll.spaces.cost import Cost

Shapes = dict[str, tuple[int, ...]]


@dataclass(frozen=True)
class BranchEntry:
    """The parameters and MACs of one branch of a block, of the stem or of the head."""

    shapes: Shapes
    macs: int
    params: int


def shapes(arch: Mapping[str, Any]) -> Shapes:
    """Parameter names and shapes of the master or, with a key, of the sub-model, in module order."""
    return {name: shape for entry in _entries(arch) for name, shape in entry.shapes.items()}


def names(arch: Mapping[str, Any]) -> list[str]:
    """Parameter names; a sub-model's weights are `master_weights.slice(names(arch))`."""
    return [name for entry in _entries(arch) for name in entry.shapes]


def cost(arch: Mapping[str, Any]) -> Cost:
    """MACs of one sample, parameters, float32 bytes. The master counts all branches as executed."""
    entries = _entries(arch)
    params = sum(entry.params for entry in entries)
    return Cost(macs=sum(entry.macs for entry in entries), params=params, bytes=4 * params)


def least_macs(arch: Mapping[str, Any]) -> int:
    """Those of the smallest sub-model. The cheapest branch of a block need not be the identity."""
    stem, blocks, head = _table(plan(arch))
    return stem.macs + sum(min(entry.macs for entry in block) for block in blocks) + head.macs


def executed_macs(arch: Mapping[str, Any], keys: Iterable[Sequence[int]]) -> int:
    """MACs per sample of prefix-shared evaluation of these keys, which executes every distinct prefix once."""
    return _executed(arch, keys)[0]


def executed_blocks(arch: Mapping[str, Any], keys: Iterable[Sequence[int]]) -> int:
    """Block executions per batch in prefix-shared evaluation; without sharing it would be keys x blocks."""
    return _executed(arch, keys)[1]


def _executed(arch: Mapping[str, Any], keys: Iterable[Sequence[int]]) -> tuple[int, int]:
    stem, blocks, head = _table(plan(arch))
    distinct = {check_key(key, len(blocks)) for key in keys}
    if not distinct:
        return 0, 0
    macs, count = stem.macs + head.macs * len(distinct), 0
    for depth, block in enumerate(blocks):
        ends = [prefix[-1] for prefix in {key[: depth + 1] for key in distinct}]
        macs += sum(block[branch].macs for branch in ends)
        count += len(ends)
    return macs, count


def _entries(arch: Mapping[str, Any]) -> list[BranchEntry]:
    """The entries of the master, or of a sub-model, in order."""
    stem, blocks, head = _table(plan(arch))
    key = key_of(arch)
    if key is None:
        return [stem, *(entry for block in blocks for entry in block), head]
    return [stem, *(block[branch] for block, branch in zip(blocks, key, strict=True)), head]


@lru_cache(maxsize=64)
def _table(plan: ChoicePlan) -> tuple[BranchEntry, tuple[tuple[BranchEntry, ...], ...], BranchEntry]:
    blocks = tuple(
        tuple(_entry(f"blocks.{number}.{plan.branch_names[branch]}.", block[branch]) for branch in range(BRANCHES))
        for number, block in enumerate(plan.blocks)
    )
    return _entry("stem.", plan.stem), blocks, _entry("", Branch((plan.head,)))


def _entry(prefix: str, branch: Branch) -> BranchEntry:
    own = {prefix + name: shape for layer in branch.layers for name, shape in layer.parameters.items()}
    return BranchEntry(own, branch.macs, sum(math.prod(shape) for shape in own.values()))
