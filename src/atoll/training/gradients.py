"""The gradient of a sub-model on a client's data, and how many of the rows it classified correctly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.training.batches import Rows, bounds
from atoll.training.metrics import Confusion
from atoll.training.networks import load, values


@dataclass(frozen=True)
class LocalGradient:
    """A gradient under the names of the given weights, and what was right and wrong on the rows that count."""

    gradient: Tensors
    confusion: Confusion

    @property
    def correct(self) -> int:
        return int(np.trace(self.confusion))

    @property
    def rows(self) -> int:
        return int(self.confusion.sum())


def batch_gradient(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    y: Array,
    batch: int,
    rng: np.random.Generator,
    device: str = "cpu",
    counted: int = 0,
) -> LocalGradient:
    """The gradient of the cross-entropy on one random batch, or on all rows if there are fewer than `batch`.

    The accuracy is over `counted` rows if these are more: those of the batch and others, in batches of the same size.
    """
    parameters = load(module, weights)
    order = rng.permutation(len(y))
    chosen = order[:batch]
    inputs, labels = Rows(x[chosen], y[chosen], module, device).between(0, len(chosen))
    gradients, found = _backward(module, parameters, inputs, labels)
    others = order[batch : max(batch, counted)]
    with torch.no_grad():
        for start in range(0, len(others), batch):
            more = others[start : start + batch]
            inputs, labels = Rows(x[more], y[more], module, device).between(0, len(more))
            found = found + _counted(module(inputs), labels)
    return LocalGradient(_named(weights, gradients), found)


def epochs_gradient(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    y: Array,
    epochs: int,
    batch: int,
    lr: float,
    rng: np.random.Generator,
    device: str = "cpu",
) -> LocalGradient:
    """The change of the weights over local epochs of plain SGD, divided by the learning rate: the sum of its gradients.

    A row counts as correct if it was classified correctly before the step on its batch. One epoch of one batch gives
    the `batch_gradient` of all rows.
    """
    parameters = load(module, weights)
    rows = Rows(x, y, module, device)
    updated = [parameter.detach() for parameter in parameters]
    cuts, found = bounds(len(rows), batch), None
    for _ in range(epochs):
        order = rows.order(rng)
        for start, stop in cuts:
            gradients, own = _backward(module, parameters, *rows.take(order[start:stop]))
            torch._foreach_add_(updated, gradients, alpha=-lr)
            found = own if found is None else found + own
    assert found is not None  # an epoch has a batch
    return LocalGradient(change(weights, values(weights, parameters), lr), found)


def change(before: Tensors, after: Tensors, lr: float) -> Tensors:
    """The sum of the gradients of plain SGD between two sets of weights."""
    return Tensors({name: (array - after[name]) / np.float32(lr) for name, array in before.items()})


def _backward(
    module: nn.Module, parameters: list[nn.Parameter], inputs: Tensor, labels: Tensor
) -> tuple[list[Tensor], Confusion]:
    logits = module(inputs)
    loss = functional.cross_entropy(logits, labels)
    # A path through a supernet may skip some of its parameters: their gradient is zero.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    return list(gradients), _counted(logits, labels)


def _counted(logits: Tensor, labels: Tensor) -> Confusion:
    """True classes by predicted ones."""
    classes = logits.shape[1]
    places = labels * classes + logits.argmax(1)
    return torch.bincount(places, minlength=classes * classes).reshape(classes, classes).cpu().numpy()


def _named(names: Mapping[str, Array], gradients: list[Tensor]) -> Tensors:
    return Tensors(
        {
            name: np.array(gradient.detach().cpu().numpy(), order="C")
            for name, gradient in zip(names, gradients, strict=True)
        }
    )
