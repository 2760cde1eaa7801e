"""The hot loop of Atoll: training a network on one client's data.

There is no optimiser object, no gradient is stored in the module, and all parameters are updated in a few fused calls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.core.messages import Array, Tensors
from atoll.errors import ConfigError
from atoll.spaces.layers import Perceptron
from atoll.training.augmentation import Augmentation
from atoll.training.batches import Rows, bounds
from atoll.training.networks import load, values


@dataclass(frozen=True)
class TrainSettings:
    """Stochastic gradient descent. The momentum starts at zero in every call of `train`."""

    epochs: int = 1
    batch: int = 50
    lr: float = 0.1
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float | None = None  # limit on the L2 norm of a step's gradient over all parameters
    steps: int | None = None  # the most steps, over all epochs

    def __post_init__(self) -> None:
        rules = {
            "epochs": (self.epochs >= 0, "0 or more"),
            "batch": (self.batch >= 1, "1 or more"),
            "lr": (0 <= self.lr < float("inf"), "a finite number of 0 or more"),
            "momentum": (0 <= self.momentum < 1, "0 or more and below 1"),
            "weight_decay": (0 <= self.weight_decay < float("inf"), "a finite number of 0 or more"),
            "steps": (self.steps is None or self.steps >= 1, "1 or more"),
            "clip": (self.clip is None or 0 < self.clip < float("inf"), "a finite number above 0"),
        }
        for name, (holds, rule) in rules.items():
            if not holds:
                raise ConfigError(f"{name} = {getattr(self, name)}: give {rule}", code="invalid-setting")

    def longest_update(self, rows: int, weights: Mapping[str, Array]) -> float | None:
        """The most that training on this many rows can change these weights, as an L2 norm; None without a clip.

        A clipped gradient of every step in the same direction gives lr x steps x clip / (1 - momentum). Weight decay
        adds the length of the weights, which grows on the way, and rounding a part of it in every step.
        """
        if self.clip is None:
            return None
        steps = self.epochs * len(bounds(rows, self.batch))
        steps = steps if self.steps is None else min(steps, self.steps)
        reach = self.lr * steps / (1 - self.momentum)
        length = math.sqrt(sum(float(np.square(weights[name], dtype=np.float64).sum()) for name in sorted(weights)))
        grown = (length + reach * self.clip) * math.exp(min(reach * self.weight_decay, 700.0))
        rounding = float(np.finfo(np.float32).eps) * steps * grown
        found = reach * (self.clip + self.weight_decay * grown) + rounding
        return found if math.isfinite(found) else None


class Workspace:
    """The intermediate tensors of one step, for batches of one size. Each step overwrites them."""

    def __init__(self, rows: int, biases: Sequence[Tensor]) -> None:
        self.outputs = [bias.new_empty(rows, len(bias)) for bias in biases]
        self.deltas = [bias.new_empty(rows, len(bias)) for bias in biases]
        self.bias_sums = [torch.empty_like(bias) for bias in biases]
        self.targets = torch.empty_like(self.outputs[-1])


class DenseSteps:
    """SGD on cross-entropy for layers `(weight, bias)` with ReLU between them; the tensors are updated in place."""

    def __init__(
        self,
        layers: Sequence[tuple[Tensor, Tensor]],
        settings: TrainSettings,
        masks: Sequence[Tensor | None] | None = None,
    ) -> None:
        self.masks = masks if masks is not None else [None] * len(layers)
        self.weights = [weight.detach() for weight, _ in layers]
        self.transposed = [weight.t() for weight in self.weights]
        self.biases = [bias.detach() for _, bias in layers]
        self.settings = settings
        momentum = bool(settings.momentum)
        self.weight_momenta = [torch.zeros_like(weight) for weight in self.weights] if momentum else []
        self.bias_momenta = [torch.zeros_like(bias) for bias in self.biases] if momentum else []
        self.one_hot = torch.eye(len(self.biases[-1]), device=self.biases[-1].device)
        self.workspaces: dict[int, Workspace] = {}

    def __call__(self, x: Tensor, y: Tensor) -> None:
        """One step on one batch."""
        if len(y) not in self.workspaces:
            self.workspaces[len(y)] = Workspace(len(y), self.biases)
        space = self.workspaces[len(y)]
        with torch.inference_mode():
            inputs = self._forward(x.flatten(1), space)
            # Derivative of the summed cross-entropy; `_update` applies the 1/rows of the mean.
            torch.index_select(self.one_hot, 0, y, out=space.targets)
            torch.softmax(space.outputs[-1], 1, out=space.deltas[-1]).sub_(space.targets)
            for number in reversed(range(len(self.weights))):
                if number:  # before the update, because this needs the weights of the forward pass
                    below = torch.mm(space.deltas[number], self.weights[number], out=space.deltas[number - 1])
                    torch.ops.aten.threshold_backward.grad_input(below, inputs[number], 0, grad_input=below)
                self._update(number, inputs[number], space.deltas[number], space.bias_sums[number])

    def _forward(self, x: Tensor, space: Workspace) -> list[Tensor]:
        """The input of every layer; the output of the last layer is in the workspace."""
        inputs = [x]
        for number, output in enumerate(space.outputs):
            torch.addmm(self.biases[number], inputs[-1], self.transposed[number], out=output)
            if number < len(space.outputs) - 1:
                inputs.append(output.relu_())
        return inputs

    def _update(self, number: int, h: Tensor, delta: Tensor, bias_sum: Tensor) -> None:
        weight, bias, settings = self.weights[number], self.biases[number], self.settings
        mask = self.masks[number]
        torch.sum(delta, 0, out=bias_sum)
        share = 1 / len(delta)
        if not self.weight_momenta:
            rate, keep = -settings.lr * share, 1 - settings.lr * settings.weight_decay
            weight.addmm_(delta.t(), h, beta=keep, alpha=rate)
            if mask is not None:
                weight.mul_(mask)
            if settings.weight_decay:
                bias.mul_(keep)
            bias.add_(bias_sum, alpha=rate)
            return
        weight_momentum, bias_momentum = self.weight_momenta[number], self.bias_momenta[number]
        weight_momentum.addmm_(delta.t(), h, beta=settings.momentum, alpha=share)
        if mask is not None:  # masked weights are zero, so their decay is too
            weight_momentum.mul_(mask)
        bias_momentum.mul_(settings.momentum).add_(bias_sum, alpha=share)
        if settings.weight_decay:
            weight_momentum.add_(weight, alpha=settings.weight_decay)
            bias_momentum.add_(bias, alpha=settings.weight_decay)
        weight.add_(weight_momentum, alpha=-settings.lr)
        bias.add_(bias_momentum, alpha=-settings.lr)


Forward = Callable[[Tensor], Tensor]
Step = Callable[[Tensor, Tensor], None]
# The loss of one batch, from the forward pass of the network, the inputs, the labels and the trained parameters in the
# order of the weights' names.
Objective = Callable[[Forward, Tensor, Tensor, Sequence[nn.Parameter]], Tensor]
NO_AUGMENTATION = Augmentation()


def cross_entropy(forward: Forward, inputs: Tensor, labels: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
    """The standard objective: the mean cross-entropy of the batch."""
    return functional.cross_entropy(forward(inputs), labels)


def proximal(strength: float) -> Objective:
    """FedProx (Li et al. 2020): cross-entropy plus `strength` / 2 times the squared distance to the first weights."""
    start: list[Tensor] = []

    def objective(forward: Forward, inputs: Tensor, labels: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
        if not start:
            start.extend(parameter.detach().clone() for parameter in parameters)
        distance = [(parameter - first).square().sum() for parameter, first in zip(parameters, start, strict=True)]
        return functional.cross_entropy(forward(inputs), labels) + 0.5 * strength * torch.stack(distance).sum()

    return objective


@dataclass(frozen=True)
class TrainOutcome:
    """The trained weights under their given names, and the extent of the training."""

    weights: Tensors
    rows: int  # of the client's training data: its weight in a weighted mean
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
    augment: Augmentation = NO_AUGMENTATION,
    objective: Objective = cross_entropy,
    device: str = "cpu",
) -> TrainOutcome:
    """Train the parameters that `weights` names, starting from its values, and return their new values.

    `forward` runs a part of the module instead of all of it (one path of a master network). `masks` gives by name which
    weights of a sparse layer exist: the others must be zero at the start and remain zero. `objective` is minimised; the
    standard one has a faster path for fully connected networks. Each epoch draws a new order of the rows from `rng`,
    and `augment` draws from it too. The call overwrites the module's parameters and leaves them in no defined state.
    """
    parameters = load(module, weights)
    rows = Rows(x, y, module, device)
    step = _steps(module, parameters, settings, forward, _mask_tensors(weights, masks or {}, device), objective)
    cuts, done = bounds(len(rows), settings.batch), 0
    most = settings.epochs * len(cuts) if settings.steps is None else min(settings.steps, settings.epochs * len(cuts))
    while done < most:
        order = rows.order(rng)
        for start, stop in cuts[: most - done]:
            inputs, labels = rows.take(order[start:stop])
            step(augment(inputs, rng), labels)
        done += len(cuts)
    return TrainOutcome(values(weights, parameters), len(rows), most)


def _mask_tensors(weights: Tensors, masks: Mapping[str, Array], device: str) -> dict[str, Tensor]:
    """The masks as float factors. Masks without a zero are left out, so a dense layer has no extra cost."""
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
    objective: Objective,
) -> Step:
    whole = len(parameters) == sum(1 for _ in module.parameters())
    owned = {parameter: masks[name] for name, parameter in module.named_parameters() if name in masks}
    standard = objective is cross_entropy and settings.clip is None
    if standard and forward is None and whole and isinstance(module, Perceptron):
        layers = [(layer.weight, layer.bias) for layer in module.layers]
        return DenseSteps(layers, settings, [owned.get(weight) for weight, _ in layers])  # type: ignore[call-overload, arg-type]
    chosen = [owned.get(parameter) for parameter in parameters]
    return AutogradSteps(forward or module, parameters, settings, chosen, objective)


class AutogradSteps:
    """SGD on any objective for any network; the parameters are updated in place."""

    def __init__(
        self,
        forward: Forward,
        parameters: list[nn.Parameter],
        settings: TrainSettings,
        masks: Sequence[Tensor | None] = (),
        objective: Objective = cross_entropy,
    ) -> None:
        self.objective = objective
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
        loss = self.objective(self.forward, x, y, self.parameters)
        # A path through a supernet may skip some of its parameters: their gradient is zero.
        gradients = list(torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True))
        for (
            number,
            mask,
        ) in self.masked:  # before the momentum, which would move masked weights off zero
            gradients[number].mul_(mask)
        settings = self.settings
        if settings.clip is not None:
            clip_norm(gradients, settings.clip)
        if settings.weight_decay:
            torch._foreach_add_(gradients, self.updated, alpha=settings.weight_decay)
        if self.momenta:
            torch._foreach_mul_(self.momenta, settings.momentum)
            torch._foreach_add_(self.momenta, gradients)
            gradients = self.momenta
        torch._foreach_add_(self.updated, gradients, alpha=-settings.lr)


def clip_norm(gradients: list[Tensor], limit: float) -> None:
    """Scale the gradients in place by one factor, so that their joint L2 norm does not exceed `limit`."""
    norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)  # torch's own clipping adds the same constant
    torch._foreach_mul_(gradients, factor)
