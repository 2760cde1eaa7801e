"""Batch normalisation as federated search needs it: no running averages, and in Atoll's own networks nothing affine.

There are no statistics to average between clients, so an output depends on weights and batch alone.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class BatchNorm(nn.Module):
    """Normalises every channel by the statistics of the batch, also when evaluating.

    After `fix` it uses the given statistics instead, so that a finished network works on a single row.
    Takes (rows, channels) and (rows, channels, height, width).
    """

    mean: Tensor | None
    variance: Tensor | None

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.channels = channels
        self.epsilon = epsilon
        self.register_buffer("mean", None)
        self.register_buffer("variance", None)

    def fix(self, mean: Tensor, variance: Tensor) -> None:
        """From now on use these statistics (one value per channel; the variance is the biased one)."""
        for value in (mean, variance):
            if value.shape != (self.channels,):
                raise ValueError(f"statistics of {self.channels} channels expected, not of shape {tuple(value.shape)}")
        self.mean = mean.detach().clone()
        self.variance = variance.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        return self._normalised(x, None, None)

    def _normalised(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.mean is None:
            return functional.batch_norm(x, None, None, weight, bias, training=True, eps=self.epsilon)
        return functional.batch_norm(x, self.mean, self.variance, weight, bias, training=False, eps=self.epsilon)

    def extra_repr(self) -> str:
        return f"{self.channels}, {'batch' if self.mean is None else 'fixed'} statistics"


class AffineBatchNorm(BatchNorm):
    """With a factor and a summand per channel, where a network has them: the stem of DARTS, modules of users."""

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__(channels, epsilon)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self._normalised(x, self.weight, self.bias)


def batch_norms(module: nn.Module) -> dict[str, BatchNorm]:
    """Every batch-norm layer of a network by its name, in the network's order."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, BatchNorm)}
