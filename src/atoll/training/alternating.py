"""Local search on a mixed supernet: weights on training rows, architecture parameters on validation rows, in turn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.training.batches import Rows, bounds
from atoll.training.networks import load, values

Level = Literal["validation", "mixed"]
Part = tuple[Array, Array]


@dataclass(frozen=True)
class Alternation:
    """DARTS of first order. `level`: alphas follow the validation loss, or that and the training loss together."""

    epochs: int
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    clip: float
    alpha_lr: float
    alpha_decay: float
    level: Level


@dataclass(frozen=True)
class Searched:
    """Weights and alphas under the names that came in; training rows that were right before the step on them."""

    tensors: Tensors
    correct: int
    rows: int


def search_locally(
    module: nn.Module,
    tensors: Tensors,
    alphas: tuple[str, ...],
    train: Part,
    validation: Part,
    settings: Alternation,
    rng: np.random.Generator,
    device: str = "cpu",
) -> Searched:
    """For every training batch a step of the alphas (Adam) on a validation batch, then one of the weights (SGD).

    `alphas` names the architecture parameters among `tensors`. Nothing of the optimisers survives the call.
    """
    parameters = load(module, tensors)
    named = dict(zip(tensors, parameters, strict=True))
    theta = [parameter for name, parameter in named.items() if name not in alphas]
    alpha = [named[name] for name in alphas]
    descent = torch.optim.SGD(theta, settings.lr, settings.momentum, weight_decay=settings.weight_decay)
    ascent = torch.optim.Adam(alpha, settings.alpha_lr, betas=(0.5, 0.999), weight_decay=settings.alpha_decay)
    rows = Rows(*train, module, device)
    validation_batches = _endless(Rows(*validation, module, device), settings.batch, rng)
    correct, cuts = 0, bounds(len(rows), settings.batch)
    for _ in range(settings.epochs):
        order = rows.order(rng)
        for start, stop in cuts:
            inputs, labels = rows.take(order[start:stop])
            losses = [_loss(module, *next(validation_batches))]
            if settings.level == "mixed":
                losses.append(_loss(module, inputs, labels))
            _step(ascent, alpha, sum(losses[1:], losses[0]))
            logits = module(inputs)
            correct += int((logits.detach().argmax(1) == labels).sum())
            _step(descent, theta, functional.cross_entropy(logits, labels), settings.clip)
    return Searched(values(tensors, parameters), correct, settings.epochs * len(rows))


def validation_rows(train: int, validation: int, settings: Alternation) -> int:
    """Rows that the alphas are trained on: for every batch of training rows one of the validation rows."""
    batches = settings.epochs * len(bounds(train, settings.batch))
    lengths = [stop - start for start, stop in bounds(validation, settings.batch)]
    passes, rest = divmod(batches, len(lengths))
    return passes * sum(lengths) + sum(lengths[:rest])


def _loss(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(module(inputs), labels)


def _step(
    optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], loss: Tensor, clip: float | None = None
) -> None:
    # A network of one cell has no normal cell: nothing depends on that kind's alphas.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()
    for parameter in parameters:
        parameter.grad = None  # the module outlives this call


def _endless(rows: Rows, batch: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches for ever, every pass in a new order."""
    while True:
        order = rows.order(rng)
        for start, stop in bounds(len(rows), batch):
            yield rows.take(order[start:stop])
