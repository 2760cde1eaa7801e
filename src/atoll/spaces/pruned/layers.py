"""Layers with parameters as plain data: their fields, modules, output shapes and costs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from atoll.errors import ArchitectureError
from atoll.spaces.layers import Conv2d
from atoll.spaces.norm import AffineBatchNorm, BatchNorm, GroupNorm
from atoll.spaces.pruned.fields import Channels, DescriptionPart, Flag, Margins, Number, Shape, Sides, window_output


class Convolution(DescriptionPart):
    kind: Literal["convolution"]
    inputs: Channels
    outputs: Channels
    kernel: Sides
    stride: Sides = (1, 1)
    padding: Margins = (0, 0)
    dilation: Sides = (1, 1)
    groups: Channels = 1
    bias: Flag = True

    def module(self) -> nn.Module:
        window = {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}
        return Conv2d(self.inputs, self.outputs, self.kernel, **window, groups=self.groups, bias=self.bias)  # type: ignore[arg-type]

    def shape(self, before: Shape) -> Shape:
        if self.inputs % self.groups or self.outputs % self.groups:
            raise ArchitectureError(
                f"{self.inputs} and {self.outputs} channels do not divide into {self.groups} groups",
                code="indivisible-groups",
            )
        sides = window_output(before, self.kernel, self.stride, self.padding, self.dilation, False)
        _same(before[0], self.inputs, "channels")
        return (self.outputs, *sides)

    def parameters(self) -> int:
        return self._taps() * self.outputs + self.bias * self.outputs

    def macs(self, after: Shape) -> int:
        return self._taps() * self.outputs * after[1] * after[2]

    def _taps(self) -> int:
        return self.inputs // self.groups * self.kernel[0] * self.kernel[1]


class Depthwise(DescriptionPart):
    """One filter per channel. A separate kind, because it has a single width, that of its input."""

    kind: Literal["depthwise"]
    channels: Channels
    kernel: Sides
    stride: Sides = (1, 1)
    padding: Margins = (0, 0)
    dilation: Sides = (1, 1)
    bias: Flag = True

    def module(self) -> nn.Module:
        return self._convolution().module()

    def shape(self, before: Shape) -> Shape:
        return self._convolution().shape(before)

    def parameters(self) -> int:
        return self._convolution().parameters()

    def macs(self, after: Shape) -> int:
        return self._convolution().macs(after)

    def _convolution(self) -> Convolution:
        return Convolution(
            kind="convolution",
            inputs=self.channels,
            outputs=self.channels,
            kernel=self.kernel,
            stride=self.stride,
            padding=self.padding,
            dilation=self.dilation,
            groups=self.channels,
            bias=self.bias,
        )


class Linear(DescriptionPart):
    kind: Literal["linear"]
    inputs: Channels
    outputs: Channels
    bias: Flag = True

    def module(self) -> nn.Module:
        return nn.Linear(self.inputs, self.outputs, bias=self.bias)

    def shape(self, before: Shape) -> Shape:
        if len(before) != 1:
            raise ArchitectureError(
                f"it needs flat rows, but its input has shape {list(before)}: flatten it first",
                code="flat-rows-required",
            )
        _same(before[0], self.inputs, "features")
        return (self.outputs,)

    def parameters(self) -> int:
        return (self.inputs + self.bias) * self.outputs

    def macs(self, after: Shape) -> int:
        return self.inputs * self.outputs


class BatchNormalisation(DescriptionPart):
    """Always uses the statistics of the batch, without running averages (see `atoll.spaces.norm`)."""

    kind: Literal["batch_norm"]
    channels: Channels
    epsilon: Number = 1e-5
    affine: Flag = False

    def module(self) -> nn.Module:
        return AffineBatchNorm(self.channels, self.epsilon) if self.affine else BatchNorm(self.channels, self.epsilon)

    def shape(self, before: Shape) -> Shape:
        _same(before[0], self.channels, "channels")
        return before

    def parameters(self) -> int:
        return 2 * self.channels * self.affine

    def macs(self, after: Shape) -> int:
        return 0


class GroupNormalisation(DescriptionPart):
    kind: Literal["group_norm"]
    channels: Channels
    # "each": one group per channel, whatever the width; "fit": as many as fit the width (`atoll.spaces.norm.GroupNorm`)
    groups: Channels | Literal["each", "fit"]
    epsilon: Number = 1e-5
    affine: Flag = True

    def module(self) -> nn.Module:
        if self.groups == "fit":
            return GroupNorm(self.channels, self.epsilon)
        return nn.GroupNorm(self._count(), self.channels, self.epsilon, self.affine)

    def shape(self, before: Shape) -> Shape:
        _same(before[0], self.channels, "channels")
        if self.groups == "fit" and self.affine:
            raise ArchitectureError(
                "groups = 'fit' has no scale and shift: affine must be false", code="unsupported-arguments"
            )
        if self.channels % self._count():
            raise ArchitectureError(
                f"{self.channels} channels do not divide into {self.groups} groups", code="indivisible-groups"
            )
        return before

    def parameters(self) -> int:
        return 2 * self.channels * self.affine

    def macs(self, after: Shape) -> int:
        return 0

    def _count(self) -> int:
        return self.groups if isinstance(self.groups, int) else self.channels


LayerDescription = Convolution | Depthwise | Linear | BatchNormalisation | GroupNormalisation
Layer = Annotated[LayerDescription, Field(discriminator="kind")]


def is_layer(module: nn.Module) -> bool:
    """Whether this module is a described layer. Subclasses are not, because they may compute something else."""
    return type(module) in (
        Conv2d,
        nn.Conv2d,
        nn.Linear,
        nn.BatchNorm1d,
        nn.BatchNorm2d,
        nn.GroupNorm,
        BatchNorm,
        AffineBatchNorm,
        GroupNorm,
    )


def described(module: nn.Module) -> LayerDescription:
    """The description of a module for which `is_layer` is true."""
    match module:
        case nn.Conv2d():
            return _convolution(module)
        case nn.Linear():
            biased = module.bias is not None
            return Linear(kind="linear", inputs=module.in_features, outputs=module.out_features, bias=biased)
        case nn.BatchNorm1d() | nn.BatchNorm2d():
            return _batch_norm(module.num_features, module.eps, module.affine)
        case BatchNorm():
            return _batch_norm(module.channels, module.epsilon, isinstance(module, AffineBatchNorm))
        case GroupNorm():
            fields = {"channels": module.channels, "epsilon": module.epsilon}
            return GroupNormalisation(kind="group_norm", groups="fit", affine=False, **fields)  # type: ignore[arg-type]
        case nn.GroupNorm():
            return GroupNormalisation(
                kind="group_norm",
                channels=module.num_channels,
                groups="each" if module.num_groups == module.num_channels > 1 else module.num_groups,
                epsilon=module.eps,
                affine=module.affine,
            )
    raise TypeError(f"{type(module).__name__} is not a described layer")


def _batch_norm(channels: int, epsilon: float, affine: bool) -> BatchNormalisation:
    return BatchNormalisation(kind="batch_norm", channels=channels, epsilon=epsilon, affine=affine)


def _convolution(module: nn.Conv2d) -> Convolution | Depthwise:
    if module.padding_mode != "zeros":
        raise ArchitectureError(
            f"padding_mode = {module.padding_mode!r}: only 'zeros' is supported", code="unsupported-arguments"
        )
    window = {
        "kernel": _both(module.kernel_size),
        "stride": _both(module.stride),
        "padding": _padding(module),
        "dilation": _both(module.dilation),
    }
    biased = module.bias is not None
    if module.groups == module.in_channels == module.out_channels > 1:
        return Depthwise(kind="depthwise", channels=module.groups, bias=biased, **window)
    width = {"inputs": module.in_channels, "outputs": module.out_channels, "groups": module.groups}
    return Convolution(kind="convolution", bias=biased, **width, **window)  # type: ignore[arg-type]


def _padding(module: nn.Conv2d) -> tuple[int, int]:
    if module.padding == "valid":
        return (0, 0)
    if isinstance(module.padding, str):
        margins = [module.dilation[axis] * (module.kernel_size[axis] - 1) for axis in (0, 1)]
        if any(margin % 2 for margin in margins):
            raise ArchitectureError(
                "padding = 'same' with an even kernel: use an odd kernel or a numeric padding", code="even-kernel"
            )
        return (margins[0] // 2, margins[1] // 2)
    return _both(module.padding)


def _both(sides: tuple[int, ...]) -> tuple[int, int]:
    height, width = sides
    return (height, width)


def _same(given: int, wanted: int, what: str) -> None:
    if given != wanted:
        raise ArchitectureError(f"it expects {wanted} {what}, but its input has {given}", code="shape-mismatch")
