"""The branches of a choice block as plain data, from which modules, parameter names and costs are derived.

A block is a reduction block if its number of output channels (for tables, its width) differs from its input's.
Convolutions and linear layers have no bias, because the norm that follows would cancel it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atoll.spaces.layers import Conv2d
from atoll.spaces.norm import Norm, make_norm

IMAGE_BRANCHES = ("identity", "residual", "inverted", "separable")
TABLE_BRANCHES = ("identity", "dense", "residual", "bottleneck")


@dataclass(frozen=True)
class BranchLayer:
    """A convolution (kernel > 0) or linear layer (kernel 0), optionally followed by a norm and ReLU."""

    name: str
    inputs: int
    outputs: int
    positions: int = 1  # pixels of the output
    kernel: int = 0
    stride: int = 1
    groups: int = 1
    norm: bool = True
    relu: bool = True
    bias: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight, as in torch."""
        if self.kernel == 0:
            return (self.outputs, self.inputs)
        return (self.outputs, self.inputs // self.groups, self.kernel, self.kernel)

    @property
    def parameters(self) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the layer's parameters."""
        shapes = {f"{self.name}.weight": self.shape}
        if self.bias:
            shapes[f"{self.name}.bias"] = (self.outputs,)
        return shapes

    @property
    def macs(self) -> int:
        return math.prod(self.shape) * self.positions


@dataclass(frozen=True)
class Branch:
    """Layers in sequence, or in parallel with their outputs concatenated."""

    layers: tuple[BranchLayer, ...] = ()
    parallel: bool = False
    shortcut: bool = False  # the input is added to the last layer's output
    relu: bool = False  # after the shortcut

    @property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)


@dataclass(frozen=True)
class Geometry:
    """The channels and pixels of an image block's input and output."""

    inputs: int
    outputs: int
    pixels_in: int
    pixels_out: int

    @property
    def reduces(self) -> bool:
        return self.inputs != self.outputs


def image_branches(block: Geometry, expansion: int) -> tuple[Branch, ...]:
    """The four branches of the paper's Fig. 4; only normal blocks have a shortcut.

    Every stride-2 layer rounds sizes up (28, 14, 7, 4), 3x3 layers through their padding of 1, so all branches agree.
    """
    return (_identity(block), _residual(block), _inverted(block, expansion), _separable(block))


def _identity(block: Geometry) -> Branch:
    """Normal: no layers. Reduction: two pointwise convolutions of stride 2, concatenated, without norm."""
    if not block.reduces:
        return Branch()
    sides = [
        BranchLayer(name, block.inputs, block.outputs // 2, block.pixels_out, 1, 2, norm=False, relu=False)
        for name in ("left", "right")
    ]
    return Branch(tuple(sides), parallel=True)


def _residual(block: Geometry) -> Branch:
    """ResNet's basic block: the last ReLU comes after the shortcut is added."""
    stride = 2 if block.reduces else 1
    first = BranchLayer("first", block.inputs, block.outputs, block.pixels_out, 3, stride)
    second = BranchLayer("second", block.outputs, block.outputs, block.pixels_out, 3, relu=False)
    return Branch((first, second), shortcut=not block.reduces, relu=True)


def _inverted(block: Geometry, expansion: int) -> Branch:
    """MobileNetV2's block: expand, filter each channel, project back without ReLU."""
    wide, stride = block.inputs * expansion, 2 if block.reduces else 1
    expand = BranchLayer("expand", block.inputs, wide, block.pixels_in, 1)
    depthwise = BranchLayer("depthwise", wide, wide, block.pixels_out, 3, stride, groups=wide)
    project = BranchLayer("project", wide, block.outputs, block.pixels_out, 1, relu=False)
    return Branch((expand, depthwise, project), shortcut=not block.reduces)


def _separable(block: Geometry) -> Branch:
    """Depthwise, pointwise, norm, ReLU, twice; the second ReLU comes after the shortcut is added."""
    stride = 2 if block.reduces else 1
    inputs, outputs, pixels = block.inputs, block.outputs, block.pixels_out
    layers = (
        BranchLayer("depthwise_first", inputs, inputs, pixels, 3, stride, groups=inputs, norm=False, relu=False),
        BranchLayer("pointwise_first", inputs, outputs, pixels, 1),
        BranchLayer("depthwise_second", outputs, outputs, pixels, 3, groups=outputs, norm=False, relu=False),
        BranchLayer("pointwise_second", outputs, outputs, pixels, 1, relu=False),
    )
    return Branch(layers, shortcut=not block.reduces, relu=True)


def table_branches(inputs: int, outputs: int, bottleneck: int) -> tuple[Branch, ...]:
    """Identity, dense, residual dense and bottleneck; the bottleneck is 1/`bottleneck` of the output width.

    If the width changes, no branch has a shortcut, identity becomes a linear layer without norm and ReLU, and dense
    and residual change the width in their first layer.
    """
    same = inputs == outputs
    squeezed = max(1, outputs // bottleneck)
    identity = Branch() if same else Branch((BranchLayer("linear", inputs, outputs, norm=False, relu=False),))
    dense = Branch((BranchLayer("linear", inputs, outputs),))
    residual = (BranchLayer("first", inputs, outputs), BranchLayer("second", outputs, outputs, relu=False))
    narrow = (BranchLayer("squeeze", inputs, squeezed), BranchLayer("expand", squeezed, outputs, relu=False))
    return (identity, dense, Branch(residual, shortcut=same, relu=True), Branch(narrow, shortcut=same, relu=True))


class SequentialBranch(nn.Module):
    """The layers of a branch in sequence. The input, which branches share, is never modified."""

    def __init__(self, branch: Branch, norm: Norm) -> None:
        super().__init__()
        self.branch = branch
        for layer in branch.layers:
            self.add_module(layer.name, make_layer(layer))
            if layer.norm:
                self.add_module(f"{layer.name}_norm", make_norm(norm, layer.outputs))

    def forward(self, x: Tensor) -> Tensor:
        # In place without gradients: evaluation takes 0.9 of the time. Training gains nothing from it.
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


class ParallelBranch(nn.Module):
    """Layers that all read the input; their outputs are concatenated over the channels."""

    def __init__(self, branch: Branch) -> None:
        super().__init__()
        for layer in branch.layers:
            self.add_module(layer.name, make_layer(layer))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([layer(x) for layer in self.children()], dim=1)


def make_branch(branch: Branch, norm: Norm = "batch") -> nn.Module:
    """The module of one branch; a branch without layers is the identity."""
    if not branch.layers:
        return nn.Identity()
    return ParallelBranch(branch) if branch.parallel else SequentialBranch(branch, norm)


def make_layer(layer: BranchLayer) -> nn.Module:
    """A linear layer, or a convolution whose padding preserves the size; stride 2 halves it, rounding up."""
    if layer.kernel == 0:
        return nn.Linear(layer.inputs, layer.outputs, bias=layer.bias)
    padding = layer.kernel // 2
    return Conv2d(
        layer.inputs, layer.outputs, layer.kernel, layer.stride, padding, groups=layer.groups, bias=layer.bias
    )
