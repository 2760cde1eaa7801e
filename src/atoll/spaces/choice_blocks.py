"""The torch modules of the choice space, made from the descriptions in `choice_layers`."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from atoll.spaces import choice_layers
from atoll.spaces.layers import Conv2d
from atoll.spaces.norm import BatchNorm


class Pipe(nn.Module):
    """Layers one after the other; see `choice_layers.Branch`. The input, which branches share, is never changed."""

    def __init__(self, branch: choice_layers.Branch) -> None:
        super().__init__()
        self.branch = branch
        for layer in branch.layers:
            self.add_module(layer.name, make_layer(layer))
            if layer.norm:
                self.add_module(f"{layer.name}_norm", BatchNorm(layer.outputs))

    def forward(self, x: Tensor) -> Tensor:
        # In place where no gradient is taken: evaluation took 0.9 of the time, training (which autograd and hooks of
        # other libraries watch) gained nothing.
        relu = torch.relu if torch.is_grad_enabled() else torch.relu_
        y, modules = x, self._modules
        for layer in self.branch.layers:
            y = modules[layer.name](y)  # type: ignore[misc]
            if layer.norm:
                y = modules[f"{layer.name}_norm"](y)  # type: ignore[misc]
            if layer.relu:
                y = relu(y)
        if self.branch.shortcut:
            y = y + x
        return relu(y) if self.branch.relu else y


class SideBySide(nn.Module):
    """Layers that all see the input; their outputs are concatenated over the channels."""

    def __init__(self, branch: choice_layers.Branch) -> None:
        super().__init__()
        for layer in branch.layers:
            self.add_module(layer.name, make_layer(layer))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([layer(x) for layer in self.children()], dim=1)


def make_branch(branch: choice_layers.Branch) -> nn.Module:
    """The module of one branch; a branch without layers hands its input on."""
    if not branch.layers:
        return nn.Identity()
    return SideBySide(branch) if branch.parallel else Pipe(branch)


def make_layer(layer: choice_layers.Layer) -> nn.Module:
    """A linear map or a convolution; the padding keeps the size, a stride of 2 halves it and rounds up."""
    if layer.kernel == 0:
        return nn.Linear(layer.inputs, layer.outputs, bias=layer.bias)
    padding = layer.kernel // 2
    return Conv2d(
        layer.inputs, layer.outputs, layer.kernel, layer.stride, padding, groups=layer.groups, bias=layer.bias
    )
