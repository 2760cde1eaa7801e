"""Building blocks of the fixed networks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn
from torch.nn import functional

from atoll.spaces.norm import Norm, make_norm


def pixels(x: Tensor, rows: slice, columns: slice) -> Tensor:
    """`x[:, :, rows, columns]` by the order in which images of training are stored, channels last, so that the gradient
    is stored in it as well. In the other order it slowed every layer on its way."""
    return x.permute(0, 2, 3, 1)[:, rows, columns].permute(0, 3, 1, 2)


class Conv2d(nn.Conv2d):
    """torch's convolution, except that an image of which it reads every second pixel only is subsampled first: by a
    strided pointwise convolution, or by one that is dilated by its stride. The result is the same.

    On CPUs without AVX-512, torch 2.13 (oneDNN 3.12) computes the first case wrongly and writes out of bounds if the
    number of channels is not a multiple of eight. The backward pass of the second case takes ten times as long there.
    """

    def forward(self, x: Tensor) -> Tensor:
        subsamples = self.kernel_size == (1, 1) or self.dilation == self.stride
        if self.stride == (1, 1) or not subsamples or isinstance(self.padding, str):
            return super().forward(x)
        (down, across), (above, left) = self.stride, self.padding
        if above % down or left % across:
            return super().forward(x)
        x = pixels(x, slice(None, None, down), slice(None, None, across))
        return functional.conv2d(x, self.weight, self.bias, padding=(above // down, left // across), groups=self.groups)


class Perceptron(nn.Module):
    """Linear layers with ReLU in between, over the flattened input.

    A separate class, because training can run such a stack without autograd (`training/sgd.py`).
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(before, after) for before, after in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        x = x.flatten(1)
        for number, layer in enumerate(self.layers):
            x = layer(functional.relu(x) if number else x)
        return x


class Residual(nn.Module):
    """ReLU of the sum of a branch and a shortcut."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module) -> None:
        super().__init__()
        self.branch = branch
        self.shortcut = shortcut

    def forward(self, x: Tensor) -> Tensor:
        return functional.relu(self.branch(x) + self.shortcut(x))


def convolution(before: int, after: int, stride: int = 1, norm: Norm = "batch") -> nn.Sequential:
    """3x3 convolution, norm, ReLU. No bias, because the norm would cancel it."""
    return nn.Sequential(_plain(before, after, 3, stride), make_norm(norm, after), nn.ReLU())


def residual(before: int, after: int, stride: int = 1, norm: Norm = "batch") -> Residual:
    """ResNet's basic block; the shortcut is a 1x1 convolution where the shape changes."""
    first = convolution(before, after, stride, norm)
    branch = nn.Sequential(first, _plain(after, after, 3, 1), make_norm(norm, after))
    if stride == 1 and before == after:
        return Residual(branch, nn.Identity())
    return Residual(branch, nn.Sequential(_plain(before, after, 1, stride), make_norm(norm, after)))


def separable(before: int, after: int, stride: int = 1, norm: Norm = "batch") -> nn.Sequential:
    """MobileNet's block: depthwise 3x3, norm, ReLU, pointwise 1x1, norm, ReLU."""
    depthwise = Conv2d(before, before, 3, stride, padding=1, groups=before, bias=False)
    pointwise = _plain(before, after, 1, 1)
    return nn.Sequential(depthwise, make_norm(norm, before), nn.ReLU(), pointwise, make_norm(norm, after), nn.ReLU())


def _plain(before: int, after: int, kernel: int, stride: int) -> nn.Conv2d:
    return Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
