"""Evaluation of many keys of one master network on the same rows: shared prefixes are computed once.

An evaluation is a pure function of master, key and batch, because batch norm takes its statistics from the batch. Keys
that begin with the same branches therefore have the same activations up to the first difference, and traversing the
keys as a tree gives each of them the same bits as evaluating it alone. `atoll.spaces.choice.space.executed_macs`
computes the cost of a traversal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from atoll.core.messages import Array, Tensors
from atoll.spaces import skeleton
from atoll.spaces.choice.space import ChoiceNetwork, check_key, sub_model
from atoll.spaces.norm import BatchMoments, BatchNorm, batch_norms
from atoll.training.batches import Rows, bounds
from atoll.training.calibration import collecting, statistics_form, statistics_from, sums_of
from atoll.training.evaluation import count_batch
from atoll.training.metrics import ConfusionCounts
from atoll.training.networks import load


@dataclass
class Prefix:
    """Common first branches of some keys: the branches that follow it, and the positions of the keys that end here.

    `layers` are the batch norms of its last block, if their statistics are wanted, and `moments` those of a batch.
    """

    following: dict[int, Prefix] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    layers: dict[str, BatchNorm] | None = None
    moments: dict[str, list[BatchMoments]] = field(default_factory=dict)

    @property
    def channels(self) -> int:
        """Of all these layers together."""
        return sum(layer.channels for layer in (self.layers or {}).values())

    def taken(self) -> list[BatchMoments]:
        """The moments since the last call, layer by layer."""
        found, self.moments = [one for own in self.moments.values() for one in own], {}
        return found


def evaluate_keys(
    module: ChoiceNetwork,
    weights: Tensors,
    keys: Sequence[Sequence[int]],
    x: Array,
    y: Array,
    batch: int = 100,
    *,
    statistics: bool = False,
    classes: int | None = None,
    device: str = "cpu",
) -> tuple[list[ConfusionCounts], dict[str, Array]]:
    """Counts of every key, in the order of `keys`: equal to `evaluate` of its sub-model alone, to the bit.

    With `statistics` also the batch norm statistics of all keys, by prefix, see `statistics_of`: they come with the
    evaluation for nearly nothing. `module` is a master network and `weights` holds at least those of its weights that
    the keys use. `classes` is needed only for a part without rows.
    """
    tree = key_tree(keys, len(module.blocks))
    load(module, weights)
    rows = Rows(x, y, module, device)
    if not len(rows) and classes is None:
        raise ValueError("no rows to evaluate: select clients that have rows in this part, or pass `classes`")
    counts: list[ConfusionCounts | None] = [None] * len(keys)
    sums: Array = np.zeros(1)
    with torch.inference_mode():
        for start, stop in bounds(len(rows), batch):
            inputs, labels = rows.between(start, stop)
            for positions, logits in walk(module, tree, inputs, statistics):
                batch_counts = count_batch(logits, labels)
                for position in positions:
                    before = counts[position]
                    counts[position] = batch_counts if before is None else before + batch_counts
            if statistics:
                sums = sums + sums_of([one for _, node in _prefixes(tree) for one in node.taken()])
    found = [ConfusionCounts.zero(classes or 0) if count is None else count for count in counts]
    return found, _split(tree, sums) if statistics else {}


def _prefixes(node: Prefix, name: str = "") -> Iterator[tuple[str, Prefix]]:
    """Every prefix by its branch numbers as one word, in the order of a traversal."""
    yield name, node
    for branch, following in node.following.items():
        yield from _prefixes(following, f"{name}{branch}")


def _split(tree: Prefix, sums: Array) -> dict[str, Array]:
    """The sums of all layers, by the prefix that they belong to."""
    nodes = [(name, node.channels) for name, node in _prefixes(tree)]
    parts = np.split(sums, np.cumsum([channels for _, channels in nodes])[:-1], axis=1)
    return {name: part for (name, channels), part in zip(nodes, parts, strict=True) if channels}


def statistics_of(by_prefix: Mapping[str, Array], arch: Mapping[str, Any], key: Sequence[int]) -> Tensors:
    """The batch norm statistics of one key, as `calibrate` returns them. What is not known are statistics of no values,
    which change nothing when they are added to others."""
    name = "".join(map(str, key))
    none = np.zeros((3, 0))
    sums = np.concatenate([by_prefix.get(name[:depth], none) for depth in range(len(name) + 1)], axis=1)
    layers = batch_norms(skeleton(sub_model(arch, key)))
    ends = np.cumsum([layer.channels for layer in layers.values()])
    if not len(ends) or sums.shape[1] != ends[-1]:
        return statistics_form(sub_model(arch, key))
    return statistics_from(dict(zip(layers, np.split(sums, ends[:-1], axis=1), strict=True)))


def key_tree(keys: Sequence[Sequence[int]], blocks: int) -> Prefix:
    """The keys as a tree of prefixes; equal keys end at the same place."""
    root = Prefix()
    for position, key in enumerate(keys):
        node = root
        for branch in check_key(key, blocks):
            node = node.following.setdefault(branch, Prefix())
        node.ends.append(position)
    return root


def walk(
    module: ChoiceNetwork, tree: Prefix, inputs: Tensor, statistics: bool = False
) -> Iterator[tuple[list[int], Tensor]]:
    """Positions and outputs of all keys on one batch.

    The traversal is depth-first, so memory holds only the activations along one path, however many keys there are.
    """
    if tree.following or tree.ends:
        with _collecting(tree, "stem", module.stem, statistics):
            x = module.run_stem(inputs)
        yield from _below(module, tree, x, 0, statistics)


def _below(
    module: ChoiceNetwork, node: Prefix, x: Tensor, depth: int, statistics: bool
) -> Iterator[tuple[list[int], Tensor]]:
    if node.ends:
        yield node.ends, module.run_head(x)
    for branch, following in node.following.items():
        name = module.branch_names[branch]
        part: nn.Module = module.blocks[depth][name]  # type: ignore[index]
        with _collecting(following, f"blocks.{depth}.{name}", part, statistics):
            y = module.run_block(depth, branch, x)
        yield from _below(module, following, y, depth + 1, statistics)


def _collecting(node: Prefix, name: str, part: nn.Module, statistics: bool) -> AbstractContextManager[None]:
    if not statistics:
        return nullcontext()
    if node.layers is None:
        node.layers = {f"{name}.{own}" if own else name: layer for own, layer in batch_norms(part).items()}
    return collecting(node.layers, node.moments)
