"""Networks of a user: torch modules independent of Atoll, for 3x8x8 images and 5 classes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

SHAPE = (3, 8, 8)
CLASSES = 5


class Joined(nn.Module):
    """A residual block, two concatenated branches and a skip connection, with affine norms and functional calls."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
        self.inner = nn.Conv2d(6, 4, 3, padding="same")
        self.inner_norm = nn.BatchNorm2d(4)
        self.outer = nn.Conv2d(4, 6, 1)
        self.outer_norm = nn.BatchNorm2d(6)
        self.left = nn.Conv2d(6, 5, 3, stride=2, padding=1)
        self.right = nn.Conv2d(6, 7, 1)
        self.wide = nn.Conv2d(6, 12, 1, stride=2)
        self.summed = nn.Identity()  # for hooks of tests
        self.joined = nn.Identity()
        self.last = nn.Conv2d(12, 8, 1)
        self.answer = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = functional.relu(self.inner_norm(self.inner(x)), inplace=True)
        y = self.outer_norm(self.outer(y))
        y += x
        x = self.summed(functional.silu(y))
        halves = torch.cat([self.left(x), functional.avg_pool2d(self.right(x), 2)], dim=1)
        x = self.joined(functional.hardswish(halves + self.wide(x)))
        return self.answer(torch.tanh(self.last(x)).mean([2, 3]))


class Grouped(nn.Module):
    """Depthwise and grouped convolutions, a gate per channel, a manual flatten, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 4, 1), nn.ReLU(), nn.Conv2d(4, 8, 1), nn.Sigmoid()
        )
        self.gated = nn.Identity()
        self.grouped = nn.Conv2d(8, 6, 3, padding=1, groups=2, bias=False)
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.GELU()
        self.hidden = nn.Linear(6 * 4 * 4, 7)
        self.hidden_act = nn.LeakyReLU(0.2)
        self.answer = nn.Linear(7, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu6(self.depthwise(self.first(x)) * 2)
        x = self.gated(x * self.gate(x))
        x = functional.max_pool2d(self.act(self.norm(self.grouped(x))), 2)
        x = x.view(x.size(0), -1)
        return self.answer(self.hidden_act(self.hidden(x)))


class GroupNormed(nn.Module):
    """Group norms with two groups, one group, and one group per channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.two = nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8)
        self.second, self.one = nn.Conv2d(8, 4, 3, padding=1), nn.GroupNorm(1, 4)
        self.third, self.each = nn.Conv2d(4, 6, 3, padding=1), nn.GroupNorm(6, 6)
        self.answer = nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.two(self.first(x)))
        x = torch.relu(self.one(self.second(x)))
        x = functional.adaptive_avg_pool2d(torch.relu(self.each(self.third(x))), 1)
        return self.answer(torch.flatten(x, 1))


class Repeated(nn.Module):
    """One layer used twice, and the input used again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.again = nn.Conv2d(6, 6, 3, padding=1)
        self.answer = nn.Linear((6 + 3) * 64, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.first(x))
        y = torch.relu(self.again(torch.relu(self.again(y))))
        return self.answer(torch.cat((x, y), 1).reshape(-1, (x.shape[1] + y.shape[1]) * 64))


def weighted(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module with random weights of this seed."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) - 0.4)
    return module


def batch(rows: int = 6, shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.randn((rows, *shape), generator=torch.Generator().manual_seed(3))
