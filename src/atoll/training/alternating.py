"""Local search on a mixed supernet: steps of the architecture parameters and of the weights, alternating."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.training import private
from atoll.training.batches import Rows, bounds
from atoll.training.networks import load, values
from atoll.training.sgd import TrainSettings

Level = Literal["validation", "mixed"]
Part = tuple[Array, Array]
BETAS = (0.5, 0.999)  # of Adam


@dataclass(frozen=True)
class Alternation:
    """First-order DARTS. `level` selects the loss of the architecture parameters.

    That is the validation loss, or the sum of validation and training loss ("mixed").
    """

    epochs: int
    batch: int
    lr: float
    momentum: float
    weight_decay: float
    clip: float
    alpha_lr: float
    alpha_decay: float
    level: Level

    def longest_update(self, rows: int, tensors: Mapping[str, Array], alphas: Collection[str]) -> float | None:
        """The most that a local search on this many rows can change weights and alphas together, as an L2 norm.

        A step of Adam changes no number by more than its learning rate times (1 - beta1) / sqrt(1 - beta2).
        """
        weights = {name: array for name, array in tensors.items() if name not in alphas}
        settings = TrainSettings(self.epochs, self.batch, self.lr, self.momentum, self.weight_decay, self.clip)
        found = settings.longest_update(rows, weights)
        steps, numbers = self.epochs * len(bounds(rows, self.batch)), sum(tensors[name].size for name in alphas)
        adam = self.alpha_lr * max(1.0, (1 - BETAS[0]) / math.sqrt(1 - BETAS[1]))
        return None if found is None else found + steps * adam * math.sqrt(numbers)


@dataclass(frozen=True)
class SearchOutcome:
    """Weights and architecture parameters under their given names.

    `correct` counts training rows that were classified correctly before the step on their batch; `rows` counts all.
    """

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
) -> SearchOutcome:
    """For each training batch: one Adam step of the architecture parameters, then one SGD step of the weights.

    The former uses a validation batch. `alphas` names the architecture parameters among `tensors`. The state of the
    optimisers is discarded.
    """
    parameters = load(module, tensors)
    named = dict(zip(tensors, parameters, strict=True))
    weights = [parameter for name, parameter in named.items() if name not in alphas]
    architecture = [named[name] for name in alphas]
    weight_optimiser, architecture_optimiser = _optimisers(weights, architecture, settings)
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
            _step(architecture_optimiser, architecture, sum(losses[1:], losses[0]))
            logits = module(inputs)
            correct += int((logits.detach().argmax(1) == labels).sum())
            _step(weight_optimiser, weights, functional.cross_entropy(logits, labels), settings.clip)
    return SearchOutcome(values(tensors, parameters), correct, settings.epochs * len(rows))


def search_privately(
    module: nn.Module,
    tensors: Tensors,
    alphas: tuple[str, ...],
    train: Part,
    validation: Part,
    settings: Alternation,
    steps: private.PrivateSteps,
    alpha_steps: private.PrivateSteps,
    rng: np.random.Generator,
    device: str = "cpu",
) -> Tensors:
    """The same with noisy gradients of Poisson batches. `rng` must be secret."""
    if settings.level != "validation":
        raise ValueError(f"level = {settings.level!r}: alphas that follow the loss of training rows are not covered")
    parameters = load(module, tensors)
    named = dict(zip(tensors, parameters, strict=True))
    weights = {name: parameter for name, parameter in named.items() if name not in alphas}
    architecture = {name: named[name] for name in alphas}
    weight_optimiser, architecture_optimiser = _optimisers(weights.values(), architecture.values(), settings)
    on_training = private.NoisyGradients(module, weights, Rows(*train, module, device), steps)
    on_validation = private.NoisyGradients(module, architecture, Rows(*validation, module, device), alpha_steps)
    for _ in range(steps.steps):
        _apply(architecture_optimiser, list(architecture.values()), on_validation.draw(rng))
        _apply(weight_optimiser, list(weights.values()), on_training.draw(rng), settings.clip)
    return values(tensors, parameters)


def _optimisers(
    weights: Iterable[nn.Parameter], architecture: Iterable[nn.Parameter], settings: Alternation
) -> tuple[torch.optim.SGD, torch.optim.Adam]:
    return (
        torch.optim.SGD(weights, settings.lr, settings.momentum, weight_decay=settings.weight_decay),
        torch.optim.Adam(architecture, settings.alpha_lr, betas=BETAS, weight_decay=settings.alpha_decay),
    )


def validation_rows(train: int, validation: int, settings: Alternation) -> int:
    """Validation rows that a local search processes: one batch of them for each training batch."""
    batches = settings.epochs * len(bounds(train, settings.batch))
    lengths = [stop - start for start, stop in bounds(validation, settings.batch)]
    passes, rest = divmod(batches, len(lengths))
    return passes * sum(lengths) + sum(lengths[:rest])


def _loss(module: nn.Module, inputs: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(module(inputs), labels)


def _step(
    optimiser: torch.optim.Optimizer, parameters: list[nn.Parameter], loss: Tensor, clip: float | None = None
) -> None:
    # A network of one cell has no normal cell, so the loss does not depend on the alphas of normal cells.
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    _apply(optimiser, parameters, gradients, clip)


def _apply(
    optimiser: torch.optim.Optimizer,
    parameters: list[nn.Parameter],
    gradients: Sequence[Tensor],
    clip: float | None = None,
) -> None:
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    if clip is not None:
        torch.nn.utils.clip_grad_norm_(parameters, clip)
    optimiser.step()
    for parameter in parameters:
        parameter.grad = None  # the module is reused: see `network`


def _endless(rows: Rows, batch: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """An infinite sequence of batches; each pass over the rows has a new random order."""
    while True:
        order = rows.order(rng)
        for start, stop in bounds(len(rows), batch):
            yield rows.take(order[start:stop])
