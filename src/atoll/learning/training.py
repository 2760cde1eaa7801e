"""The product's hot loop: training a network on one client's data.

No optimiser object, no gradients kept in the module, updates of all parameters in a few fused calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.learning.augmentation import Augmentation
from atoll.learning.batches import Rows, bounds
from atoll.learning.dense import DenseSteps
from atoll.learning.networks import load, values
from atoll.learning.settings import TrainSettings
from atoll.messages import Array, Tensors
from atoll.spaces.layers import Perceptron

Forward = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor], None]
NOTHING = Augmentation()


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
    masks: Mapping[str, Array] | None = None,
    augment: Augmentation = NOTHING,
    device: str = "cpu",
) -> TrainOutcome:
    """Train the parameters that `weights` names, starting from its values, and return their new values.

    `forward` runs a part of the module instead of all of it (one path of a master network). `masks` says by name which
    weights of a sparse layer exist: the others must start at zero and stay there. Each epoch sees the rows in a new
    order drawn from `rng`, their images changed by `augment` with draws from it too. What the module held is
    overwritten and means nothing afterwards.
    """
    parameters = load(module, weights)
    rows = Rows(x, y, module, device)
    step = _steps(module, parameters, settings, forward, _mask_tensors(weights, masks or {}, device))
    cuts = bounds(len(rows), settings.batch)
    for _ in range(settings.epochs):
        order = rows.order(rng)
        for start, stop in cuts:
            inputs, labels = rows.take(order[start:stop])
            step(augment(inputs, rng), labels)
    return TrainOutcome(values(weights, parameters), len(rows), settings.epochs * len(cuts))


def _mask_tensors(weights: Tensors, masks: Mapping[str, Array], device: str) -> dict[str, Tensor]:
    """Masks with something missing, as factors of the weights' type: a full layer costs nothing extra."""
    return {
        name: torch.tensor(mask, dtype=torch.float32, device=device)
        for name, mask in masks.items()
        if name in weights and not mask.all()
    }


def _steps(
    module: nn.Module,
    parameters: list[nn.Parameter],
    settings: TrainSettings,
    forward: Forward | None,
    masks: Mapping[str, Tensor],
) -> Step:
    whole = len(parameters) == sum(1 for _ in module.parameters())
    owned = {parameter: masks[name] for name, parameter in module.named_parameters() if name in masks}
    if forward is None and whole and isinstance(module, Perceptron) and settings.clip is None:
        layers = [(layer.weight, layer.bias) for layer in module.layers]
        return DenseSteps(layers, settings, [owned.get(weight) for weight, _ in layers])  # type: ignore[call-overload, arg-type]
    return AutogradSteps(forward or module, parameters, settings, [owned.get(parameter) for parameter in parameters])


class AutogradSteps:
    """SGD on cross-entropy for any network; the parameters are updated in place."""

    def __init__(
        self,
        forward: Forward,
        parameters: list[nn.Parameter],
        settings: TrainSettings,
        masks: Sequence[Tensor | None] = (),
    ) -> None:
        self.masked = [(number, mask) for number, mask in enumerate(masks) if mask is not None]
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
        # A path through a supernet may lead around some of its parameters: their gradient is zero.
        gradients = list(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))
        for number, mask in self.masked:  # before the momentum, or it would carry weights out of the graph
            gradients[number].mul_(mask)
        settings = self.settings
        if settings.clip is not None:
            shorten(gradients, settings.clip)
        if settings.weight_decay:
            torch._foreach_add_(gradients, self.updated, alpha=settings.weight_decay)
        if self.momenta:
            torch._foreach_mul_(self.momenta, settings.momentum)
            torch._foreach_add_(self.momenta, gradients)
            gradients = self.momenta
        torch._foreach_add_(self.updated, gradients, alpha=-settings.lr)


def shorten(gradients: list[Tensor], longest: float) -> None:
    """Scale the gradients in place, all alike, if together they are longer than this."""
    length = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    factor = (longest / (length + 1e-6)).clamp(max=1.0)  # torch's own clipping adds the same small number
    torch._foreach_mul_(gradients, factor)
