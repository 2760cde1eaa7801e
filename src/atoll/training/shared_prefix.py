"""Evaluation of many keys of one master network on the same rows: shared prefixes are computed once.

An evaluation is a pure function of master, key and batch, because batch norm takes its statistics from the batch. Keys
that begin with the same branches therefore have the same activations up to the first difference, and traversing the
keys as a tree gives each of them the same bits as evaluating it alone. `atoll.spaces.choice.space.executed_macs`
computes the cost of a traversal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from atoll.core.messages import Array, Tensors
from atoll.spaces.choice.space import ChoiceNetwork, check_key
from atoll.spaces.norm import batch_norms
from atoll.training.batches import Rows, bounds
from atoll.training.calibration import collecting, statistics_from
from atoll.training.evaluation import count_batch
from atoll.training.metrics import ConfusionCounts
from atoll.training.networks import load


@dataclass
class Prefix:
    """Common first branches of some keys: the branches that follow it, and the positions of the keys that end here.

    A `watched` prefix is one of a key whose batch statistics are wanted; `sums` holds those of its last block's layers.
    """

    following: dict[int, Prefix] = field(default_factory=dict)
    ends: list[int] = field(default_factory=list)
    watched: bool = False
    sums: dict[str, Tensor] = field(default_factory=dict)


def evaluate_keys(
    module: ChoiceNetwork,
    weights: Tensors,
    keys: Sequence[Sequence[int]],
    x: Array,
    y: Array,
    batch: int = 100,
    *,
    watched: Sequence[int] = (),
    classes: int | None = None,
    device: str = "cpu",
) -> tuple[list[ConfusionCounts], list[Tensors]]:
    """Counts of every key, in the order of `keys`: equal to `evaluate` of its sub-model alone, to the bit.

    Also the batch norm statistics of the keys at the positions `watched`, as `calibrate` returns them: they come with
    the evaluation for free. `module` is a master network and `weights` holds at least those of its weights that the
    keys use. `classes` is needed only for a part without rows.
    """
    tree = key_tree(keys, len(module.blocks))
    for position in watched:
        for node in _path(tree, keys[position]):
            node.watched = True
    load(module, weights)
    rows = Rows(x, y, module, device)
    if not len(rows) and classes is None:
        raise ValueError("no rows to evaluate: select clients that have rows in this part, or pass `classes`")
    counts: list[ConfusionCounts | None] = [None] * len(keys)
    with torch.inference_mode():
        for start, stop in bounds(len(rows), batch):
            inputs, labels = rows.between(start, stop)
            for positions, logits in walk(module, tree, inputs):
                batch_counts = count_batch(logits, labels)
                for position in positions:
                    before = counts[position]
                    counts[position] = batch_counts if before is None else before + batch_counts
    found = [ConfusionCounts.zero(classes or 0) if count is None else count for count in counts]
    return found, [statistics_from(_sums(tree, keys[position])) for position in watched]


def _path(tree: Prefix, key: Sequence[int]) -> list[Prefix]:
    """The prefixes of a key, from none of its branches to all."""
    nodes = [tree]
    for branch in key:
        nodes.append(nodes[-1].following[branch])
    return nodes


def _sums(tree: Prefix, key: Sequence[int]) -> dict[str, Tensor]:
    return {name: values for node in _path(tree, key) for name, values in node.sums.items()}


def key_tree(keys: Sequence[Sequence[int]], blocks: int) -> Prefix:
    """The keys as a tree of prefixes; equal keys end at the same place."""
    root = Prefix()
    for position, key in enumerate(keys):
        node = root
        for branch in check_key(key, blocks):
            node = node.following.setdefault(branch, Prefix())
        node.ends.append(position)
    return root


def walk(module: ChoiceNetwork, tree: Prefix, inputs: Tensor) -> Iterator[tuple[list[int], Tensor]]:
    """Positions and outputs of all keys on one batch.

    The traversal is depth-first, so memory holds only the activations along one path, however many keys there are.
    """
    if tree.following or tree.ends:
        with _collecting(tree, "stem", module.stem):
            x = module.run_stem(inputs)
        yield from _below(module, tree, x, 0)


def _below(module: ChoiceNetwork, node: Prefix, x: Tensor, depth: int) -> Iterator[tuple[list[int], Tensor]]:
    if node.ends:
        yield node.ends, module.run_head(x)
    for branch, following in node.following.items():
        name = module.branch_names[branch]
        with _collecting(following, f"blocks.{depth}.{name}", module.blocks[depth][name]):  # type: ignore[index]
            y = module.run_block(depth, branch, x)
        yield from _below(module, following, y, depth + 1)


def _collecting(node: Prefix, name: str, part: nn.Module) -> AbstractContextManager[None]:
    if not node.watched:
        return nullcontext()
    layers = {f"{name}.{own}" if own else name: layer for own, layer in batch_norms(part).items()}
    return collecting(layers, node.sums)
