"""Normalisation for federated search: no running averages, and no affine parameters in built-in networks.

Clients have no statistics to average, so with batch norm an output depends only on the weights and the batch. With
group norm it depends on the weights and the row alone, which training with `[privacy]` needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.errors import ArchitectureError, nearest

Norm = Literal["batch", "group"]  # the setting of architectures that can have either; "batch" is left out of them

MOST_GROUPS = 32
FEWEST_CHANNELS = 4  # of a group


def norm_of(architecture: Mapping[str, Any]) -> Norm:
    """The setting `norm` of an architecture."""
    value: Norm = architecture.get("norm", "batch")
    if value not in get_args(Norm):
        raise ArchitectureError(
            f"norm = {value!r}: unknown; {nearest(str(value), get_args(Norm))}", code="invalid-setting"
        )
    return value


class BatchMoments(NamedTuple):
    """What a layer has normalised a batch by."""

    values: int  # per channel
    mean: Tensor
    inverse: Tensor  # of the deviation: one over the root of variance and epsilon
    epsilon: float


class BatchNorm(nn.Module):
    """Normalises every channel by the statistics of the batch, in evaluation too.

    After `fix` it uses the given statistics instead, so that a finished network can process a single row. While
    `moments` is set, it gets those of each batch. Accepts (rows, channels) and (rows, channels, height, width).
    """

    mean: Tensor | None
    variance: Tensor | None

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.channels = channels
        self.epsilon = epsilon
        self.register_buffer("mean", None)
        self.register_buffer("variance", None)
        self.moments: list[BatchMoments] | None = None

    def fix(self, mean: Tensor, variance: Tensor) -> None:
        """Use these statistics from now on: one value per channel, the variance without Bessel's correction."""
        for value in (mean, variance):
            if value.shape != (self.channels,):
                raise ValueError(
                    f"statistics have shape {tuple(value.shape)}: give one value for each of {self.channels} channels"
                )
        self.mean = mean.detach().clone()
        self.variance = variance.detach().clone()

    def forward(self, x: Tensor) -> Tensor:
        return self._normalised(x, None, None)

    def _normalised(self, x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
        if self.moments is not None and self.mean is None:
            # The same outputs; the kernel returns the statistics of the batch, which it has computed anyway.
            y, mean, inverse = torch.native_batch_norm(x, weight, bias, None, None, True, 0.0, self.epsilon)
            self.moments.append(BatchMoments(x.numel() // self.channels, mean, inverse, self.epsilon))
            return y
        if self.mean is None:
            return functional.batch_norm(x, None, None, weight, bias, training=True, eps=self.epsilon)
        return functional.batch_norm(x, self.mean, self.variance, weight, bias, training=False, eps=self.epsilon)

    def extra_repr(self) -> str:
        return f"{self.channels}, {'batch' if self.mean is None else 'fixed'} statistics"


class AffineBatchNorm(BatchNorm):
    """With a scale and a shift per channel: for the stem of DARTS and users' modules."""

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__(channels, epsilon)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return self._normalised(x, self.weight, self.bias)


def batch_norms(module: nn.Module) -> dict[str, BatchNorm]:
    """All batch-norm layers of a network by name, in the network's order."""
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, BatchNorm)}


class GroupNorm(nn.Module):
    """Normalises every row by itself: groups of channels of an image, all values of a table's row together.

    It has no parameters, so weights have the same names with either norm. A group of one value is left as it is.
    """

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.channels = channels
        self.epsilon = epsilon
        fitting = [
            count
            for count in range(1, MOST_GROUPS + 1)
            if channels % count == 0 and channels // count >= FEWEST_CHANNELS
        ]
        self.groups = max(fitting, default=1)

    def forward(self, x: Tensor) -> Tensor:
        groups = self.groups if x.dim() > 2 else 1
        if x[0].numel() == groups:
            return x
        return functional.group_norm(x, groups, eps=self.epsilon)

    def extra_repr(self) -> str:
        return f"{self.channels}, {self.groups} groups"


class AffineGroupNorm(GroupNorm):
    """With a scale and a shift per channel, under the names of `AffineBatchNorm`."""

    def __init__(self, channels: int, epsilon: float = 1e-5) -> None:
        super().__init__(channels, epsilon)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) * self.weight[:, None, None] + self.bias[:, None, None]


def use_group_norm(network: nn.Module) -> None:
    """Replace every batch norm of a network by a group norm; names and shapes of its parameters stay."""
    for parent in list(network.modules()):
        for name, layer in parent.named_children():
            if isinstance(layer, BatchNorm):
                kind = AffineGroupNorm if isinstance(layer, AffineBatchNorm) else GroupNorm
                setattr(parent, name, kind(layer.channels, layer.epsilon))


def make_norm(kind: Norm, channels: int) -> nn.Module:
    return GroupNorm(channels) if kind == "group" else BatchNorm(channels)
