"""The product's hot loop: training a network on one client's data.

No optimiser object, no gradients kept in the module, updates of all parameters in a few fused calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.learning.batches import Rows, bounds
from atoll.learning.dense import DenseSteps
from atoll.learning.networks import load, values
from atoll.learning.settings import TrainSettings
from atoll.messages import Array, Tensors
from atoll.spaces.layers import Perceptron

Forward = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor], None]


@dataclass(frozen=True)
class TrainOutcome:
    """The trained weights, under the names that came in, and what was done for them."""

    weights: Tensors
    rows: int  # of the client's part; the weight of a weighted mean
    steps: int


def train(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    y: Array,
    settings: TrainSettings,
    rng: np.random.Generator,
    *,
    forward: Forward | None = None,
    device: str = "cpu",
) -> TrainOutcome:
    """Train the parameters that `weights` names, starting from its values, and return their new values.

    `forward` runs a part of the module instead of all of it (one path of a master network); it must use every
    parameter that `weights` names. Each epoch sees the rows in a new order drawn from `rng`. What the module held
    is overwritten and means nothing afterwards.
    """
    parameters = load(module, weights)
    rows = Rows(x, y, module, device)
    step = _steps(module, parameters, settings, forward)
    cuts = bounds(len(rows), settings.batch)
    for _ in range(settings.epochs):
        order = rows.order(rng)
        for start, stop in cuts:
            step(*rows.take(order[start:stop]))
    return TrainOutcome(values(weights, parameters), len(rows), settings.epochs * len(cuts))


def _steps(module: nn.Module, parameters: list[nn.Parameter], settings: TrainSettings, forward: Forward | None) -> Step:
    whole = len(parameters) == sum(1 for _ in module.parameters())
    if forward is None and whole and isinstance(module, Perceptron):
        return DenseSteps([(layer.weight, layer.bias) for layer in module.layers], settings)  # type: ignore[misc]
    return AutogradSteps(forward or module, parameters, settings)


class AutogradSteps:
    """SGD on cross-entropy for any network; the parameters are updated in place."""

    def __init__(self, forward: Forward, parameters: list[nn.Parameter], settings: TrainSettings) -> None:
        self.forward = forward
        self.parameters = parameters
        self.updated = [parameter.detach() for parameter in parameters]
        self.momenta = [torch.zeros_like(value) for value in self.updated] if settings.momentum else []
        self.settings = settings

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """One step on one batch."""
        if not self.parameters:
            return
        loss = functional.cross_entropy(self.forward(x), y)
        gradients = list(torch.autograd.grad(loss, self.parameters))
        settings = self.settings
        if settings.weight_decay:
            torch._foreach_add_(gradients, self.updated, alpha=settings.weight_decay)
        if self.momenta:
            torch._foreach_mul_(self.momenta, settings.momentum)
            torch._foreach_add_(self.momenta, gradients)
            gradients = self.momenta
        torch._foreach_add_(self.updated, gradients, alpha=-settings.lr)
