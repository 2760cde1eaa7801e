"""The torch modules of DARTS' layers, made from the descriptions in `darts_layers`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from atoll.spaces.darts_layers import Layer, Part
from atoll.spaces.layers import Conv2d
from atoll.spaces.norm import AffineBatchNorm, BatchNorm


class Halving(nn.Module):
    """Factorised reduction: every second pixel from the first one on, and every second one from the next.

    An image with an odd side gets a border of zeros, so that both halves are of one size.
    """

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        first, second = (outputs for outputs, *_ in layer.shapes.values())
        self.even = Conv2d(layer.inputs, first, 1, stride=2, bias=False)
        self.odd = Conv2d(layer.inputs, second, 1, stride=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        height, width = x.shape[2:]
        shifted = functional.pad(x, (0, width % 2, 0, height % 2)) if height % 2 or width % 2 else x
        return torch.cat([self.even(x), self.odd(shifted[:, :, 1:, 1:])], dim=1)


def make_part(part: Part) -> nn.Module:
    """The layers one after the other; a part without layers hands its input on."""
    return nn.Sequential(*(make_layer(layer) for layer in part)) if part else nn.Identity()


def make_layer(layer: Layer) -> nn.Module:
    """The padding keeps the size; a stride of 2 halves it and rounds up. No bias before a norm."""
    if layer.kind == "relu":
        return nn.ReLU()
    if layer.kind == "norm":
        return AffineBatchNorm(layer.outputs) if layer.affine else BatchNorm(layer.outputs)
    if layer.kind == "max":
        return nn.MaxPool2d(3, stride=layer.stride, padding=1)
    if layer.kind == "average":
        return nn.AvgPool2d(3, stride=layer.stride, padding=1, count_include_pad=False)
    if layer.kind == "halve":
        return Halving(layer)
    if layer.kind == "linear":
        return nn.Linear(layer.inputs, layer.outputs)
    return Conv2d(
        layer.inputs,
        layer.outputs,
        layer.kernel,
        stride=layer.stride,
        padding=layer.dilation * (layer.kernel // 2),
        dilation=layer.dilation,
        groups=layer.groups,
        bias=False,
    )
