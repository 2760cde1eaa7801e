"""Evaluation of a network on one part of a client's data, as counts that the server can add exactly."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.spaces.norm import BatchMoments, batch_norms
from atoll.training.batches import Rows, bounds
from atoll.training.calibration import collecting, statistics_from, sums_of
from atoll.training.metrics import ConfusionCounts
from atoll.training.networks import load
from atoll.training.sgd import Forward


def evaluate(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    y: Array,
    batch: int = 100,
    *,
    classes: int | None = None,
    forward: Forward | None = None,
    device: str = "cpu",
) -> ConfusionCounts:
    """Counts over all rows in their given order; with batch norm, the result depends on the batches.

    `classes` is needed only for a part without rows. `forward` is that of `train`.
    """
    load(module, weights)
    rows = Rows(x, y, module, device)
    if not len(rows) and classes is None:
        raise ValueError("no rows to evaluate: select clients that have rows in this part, or pass `classes`")
    counts = ConfusionCounts.zero(classes or 0)
    run = forward or module
    with torch.inference_mode():
        for start, stop in bounds(len(rows), batch):
            inputs, labels = rows.between(start, stop)
            batch_counts = count_batch(run(inputs), labels)
            counts = batch_counts + counts if counts.rows else batch_counts
    return counts


def evaluate_and_calibrate(
    module: nn.Module, weights: Tensors, x: Array, y: Array, batch: int = 100, device: str = "cpu"
) -> tuple[ConfusionCounts, Tensors]:
    """The counts of `evaluate`, and the batch norm statistics of the same rows, which cost nothing more."""
    layers = batch_norms(module)
    moments: dict[str, list[BatchMoments]] = {}
    with collecting(layers, moments):
        counts = evaluate(module, weights, x, y, batch, device=device)
    sums = {name: sums_of(own).reshape(3, -1, layers[name].channels).sum(1) for name, own in moments.items()}
    return counts, statistics_from(sums)


def count_batch(logits: Tensor, labels: Tensor) -> ConfusionCounts:
    """The counts of one batch."""
    classes = logits.shape[1]
    pairs = (labels * classes + logits.argmax(1)).cpu().numpy()
    confusion = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return ConfusionCounts(confusion.astype(np.int64), float(functional.cross_entropy(logits, labels, reduction="sum")))
