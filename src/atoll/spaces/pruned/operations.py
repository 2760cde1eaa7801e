"""Operations without parameters as plain data: their fields, functions and output shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from atoll.errors import ArchitectureError
from atoll.spaces.pruned.fields import DescriptionPart, Flag, Margins, Number, Shape, Side, Sides, window_output

Value = Annotated[int, Field(strict=True, ge=0)]  # 0 is the network's input, n the value of the n-th node
Function = Callable[..., Tensor]

ACTIVATIONS: dict[str, Function] = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "silu": functional.silu,
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softplus": functional.softplus,
    "mish": functional.mish,
}
COMBINATIONS: dict[str, Function] = {
    "add": torch.add,
    "subtract": torch.sub,
    "multiply": torch.mul,
    "divide": torch.div,
}


class LayerCall(DescriptionPart):
    """A call of a layer with parameters, by name."""

    op: Literal["layer"]
    of: tuple[Value]
    name: str


class ShapePreserving(DescriptionPart):
    """The output has the shape of the input."""

    def shape(self, before: Sequence[Shape]) -> Shape:
        return before[0]


class Activation(ShapePreserving):
    op: Literal["relu", "relu6", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "softplus", "mish"]
    of: tuple[Value]

    def function(self) -> Function:
        return ACTIVATIONS[self.op]


class Gelu(ShapePreserving):
    op: Literal["gelu"]
    of: tuple[Value]
    approximate: Literal["none", "tanh"] = "none"

    def function(self) -> Function:
        return partial(functional.gelu, approximate=self.approximate)


class SlopedActivation(ShapePreserving):
    """`slope` is leaky_relu's negative slope, or elu's alpha."""

    op: Literal["leaky_relu", "elu"]
    of: tuple[Value]
    slope: Number

    def function(self) -> Function:
        if self.op == "elu":
            return partial(functional.elu, alpha=self.slope)
        return partial(functional.leaky_relu, negative_slope=self.slope)


class LogSoftmax(ShapePreserving):
    """Over the classes. Some networks end with it; cross-entropy is the same with and without it."""

    op: Literal["log_softmax"]
    of: tuple[Value]

    def function(self) -> Function:
        return partial(functional.log_softmax, dim=1)


class MaxPool(DescriptionPart):
    op: Literal["max_pool"]
    of: tuple[Value]
    kernel: Sides
    stride: Sides
    padding: Margins = (0, 0)
    dilation: Sides = (1, 1)
    round_up: Flag = False

    def function(self) -> Function:
        window = {"kernel_size": self.kernel, "stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return partial(functional.max_pool2d, **window, ceil_mode=self.round_up)

    def shape(self, before: Sequence[Shape]) -> Shape:
        _check_padding(self.kernel, self.padding)
        sides = window_output(before[0], self.kernel, self.stride, self.padding, self.dilation, self.round_up)
        return (before[0][0], *sides)


class AveragePool(DescriptionPart):
    op: Literal["average_pool"]
    of: tuple[Value]
    kernel: Sides
    stride: Sides
    padding: Margins = (0, 0)
    round_up: Flag = False
    count_padding: Flag = True

    def function(self) -> Function:
        window: dict[str, Any] = {"kernel_size": self.kernel, "stride": self.stride, "padding": self.padding}
        return partial(functional.avg_pool2d, **window, ceil_mode=self.round_up, count_include_pad=self.count_padding)

    def shape(self, before: Sequence[Shape]) -> Shape:
        _check_padding(self.kernel, self.padding)
        sides = window_output(before[0], self.kernel, self.stride, self.padding, (1, 1), self.round_up)
        return (before[0][0], *sides)


class AdaptivePool(DescriptionPart):
    op: Literal["adaptive_average_pool", "adaptive_max_pool"]
    of: tuple[Value]
    size: tuple[Side, Side]

    def function(self) -> Function:
        average = self.op == "adaptive_average_pool"
        pool = functional.adaptive_avg_pool2d if average else functional.adaptive_max_pool2d
        return partial(pool, output_size=self.size)

    def shape(self, before: Sequence[Shape]) -> Shape:
        return (_image(before[0])[0], *self.size)


class SpatialMean(DescriptionPart):
    """The mean over height and width; `keep` retains these axes with length one."""

    op: Literal["mean"]
    of: tuple[Value]
    keep: Flag = False

    def function(self) -> Function:
        return partial(torch.mean, dim=(2, 3), keepdim=self.keep)

    def shape(self, before: Sequence[Shape]) -> Shape:
        channels = _image(before[0])[0]
        return (channels, 1, 1) if self.keep else (channels,)


class Flatten(DescriptionPart):
    """Each sample as one row."""

    op: Literal["flatten"]
    of: tuple[Value]

    def function(self) -> Function:
        return partial(torch.flatten, start_dim=1)

    def shape(self, before: Sequence[Shape]) -> Shape:
        return (prod(before[0]),)


class Elementwise(DescriptionPart):
    """Two values, element by element; a channel of size 1x1 is broadcast over the image."""

    op: Literal["add", "subtract", "multiply"]
    of: tuple[Value, Value]

    def function(self) -> Function:
        return COMBINATIONS[self.op]

    def shape(self, before: Sequence[Shape]) -> Shape:
        first, second = before
        compatible = len(first) == len(second) and all(
            a == b or 1 in (a, b) for a, b in zip(first[1:], second[1:], strict=True)
        )
        if not compatible or first[0] != second[0]:
            raise ArchitectureError(
                f"the shapes {list(first)} and {list(second)} are incompatible", code="shape-mismatch"
            )
        return tuple(max(a, b) for a, b in zip(first, second, strict=True))


class Constant(DescriptionPart):
    """A value combined with a constant number."""

    op: Literal["add_number", "multiply_number", "divide_number"]
    of: tuple[Value]
    number: Number

    def function(self) -> Function:
        return partial(COMBINATIONS[self.op.removesuffix("_number")], other=self.number)

    def shape(self, before: Sequence[Shape]) -> Shape:
        if self.op == "divide_number" and self.number == 0:
            raise ArchitectureError("it divides by zero", code="division-by-zero")
        return before[0]


class Concatenate(DescriptionPart):
    """Several values, concatenated over the channels."""

    op: Literal["concatenate"]
    of: tuple[Value, ...] = Field(min_length=1, max_length=4096)

    def function(self) -> Function:
        return _concatenate

    def shape(self, before: Sequence[Shape]) -> Shape:
        for shape in before:
            if shape[1:] != before[0][1:]:
                raise ArchitectureError(
                    f"the shapes {list(before[0])} and {list(shape)} are incompatible", code="shape-mismatch"
                )
        return (sum(shape[0] for shape in before), *before[0][1:])


Operation = (
    Activation
    | Gelu
    | SlopedActivation
    | LogSoftmax
    | MaxPool
    | AveragePool
    | AdaptivePool
    | SpatialMean
    | Flatten
    | Elementwise
    | Constant
    | Concatenate
)
Node = Annotated[LayerCall | Operation, Field(discriminator="op")]


def _concatenate(*values: Tensor) -> Tensor:
    return torch.cat(values, 1)


def _image(shape: Shape) -> Shape:
    if len(shape) != 3:
        raise ArchitectureError(f"it needs images, but its input has shape {list(shape)}", code="images-required")
    return shape


def _check_padding(kernel: tuple[int, int], padding: tuple[int, int]) -> None:
    if any(2 * margin > side for margin, side in zip(padding, kernel, strict=True)):
        raise ArchitectureError(
            f"padding {list(padding)} is more than half the window {list(kernel)}", code="padding-too-large"
        )
