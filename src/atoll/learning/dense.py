"""Training steps of a stack of linear layers, written out by hand.

A small perceptron's step is so short that autograd's bookkeeping and the separate pass over the gradients take
nearly half of it. Here the update is part of the product that would give the gradient, `W <- beta W + alpha dᵀh`,
so gradients of weights are never stored, and all else goes into memory that is taken once.

A sparse layer is a whole matrix too, with zeros where its graph has no connection; what an update puts there is wiped
out by one product with the graph. Torch's sparse formats took two to five times as long at a tenth of the connections.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from atoll.learning.settings import TrainSettings


class Workspace:
    """What one step computes for batches of one size, overwritten by the next step."""

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
            # derivative of the summed cross-entropy; the mean's 1/rows is part of every update
            torch.index_select(self.one_hot, 0, y, out=space.targets)
            torch.softmax(space.outputs[-1], 1, out=space.deltas[-1]).sub_(space.targets)
            for number in reversed(range(len(self.weights))):
                if number:  # before the update: this takes the weights of the forward pass
                    below = torch.mm(space.deltas[number], self.weights[number], out=space.deltas[number - 1])
                    torch.ops.aten.threshold_backward.grad_input(below, inputs[number], 0, grad_input=below)
                self._update(number, inputs[number], space.deltas[number], space.bias_sums[number])

    def _forward(self, x: Tensor, space: Workspace) -> list[Tensor]:
        """The input of every layer; the last layer's output stays in the workspace."""
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
        if mask is not None:  # the weight itself is zero outside the graph, and so is its decay
            weight_momentum.mul_(mask)
        bias_momentum.mul_(settings.momentum).add_(bias_sum, alpha=share)
        if settings.weight_decay:
            weight_momentum.add_(weight, alpha=settings.weight_decay)
            bias_momentum.add_(bias, alpha=settings.weight_decay)
        weight.add_(weight_momentum, alpha=-settings.lr)
        bias.add_(bias_momentum, alpha=-settings.lr)
