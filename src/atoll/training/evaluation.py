"""How a network does on one part of a client's data: counts, so that the server can add clients up exactly."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.training.batches import Rows, bounds
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
    """Counts over all rows, in their given order: with batch norm the batches are part of the result.

    `classes` is needed only for a part without rows. `forward` as in `train`.
    """
    load(module, weights)
    rows = Rows(x, y, module, device)
    if not len(rows) and classes is None:
        raise ValueError("no rows to evaluate: ask clients with rows in this part, or say how many classes there are")
    counts = ConfusionCounts.zero(classes or 0)
    run = forward or module
    with torch.inference_mode():
        for start, stop in bounds(len(rows), batch):
            inputs, labels = rows.between(start, stop)
            found = counted(run(inputs), labels)
            counts = found + counts if counts.rows else found
    return counts


def counted(logits: Tensor, labels: Tensor) -> ConfusionCounts:
    """The counts of one batch."""
    classes = logits.shape[1]
    pairs = (labels * classes + logits.argmax(1)).cpu().numpy()
    confusion = np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)
    return ConfusionCounts(confusion.astype(np.int64), float(functional.cross_entropy(logits, labels, reduction="sum")))
