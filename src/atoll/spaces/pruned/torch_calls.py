"""Torch's functions, methods and parameterless modules, by name, as nodes of a description.

A function here has the signature of its torch counterpart, so that a traced call can be passed on unchanged, and
returns the node of a description. Values are node numbers. A parameterless module is converted as a call of its
function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import nn

from atoll.errors import ArchitectureError

NodeData = dict[str, Any]  # a node of a program; {"of": [value]} alone means the value itself
Size = int | Sequence[int]


def plain(op: str) -> Callable[..., NodeData]:
    """An operation on one value without settings."""

    def node(input: int, inplace: bool = False) -> NodeData:
        return {"op": op, "of": [input]}

    return node


def softplus(input: int, beta: float = 1, threshold: float = 20) -> NodeData:
    if (beta, threshold) != (1, 20):
        raise ArchitectureError(
            f"softplus with beta {beta} and threshold {threshold}: only 1 and 20 are supported",
            code="unsupported-arguments",
        )
    return {"op": "softplus", "of": [input]}


def gelu(input: int, approximate: str = "none") -> NodeData:
    return {"op": "gelu", "of": [input], "approximate": approximate}


def leaky_relu(input: int, negative_slope: float = 0.01, inplace: bool = False) -> NodeData:
    return {"op": "leaky_relu", "of": [input], "slope": float(negative_slope)}


def elu(input: int, alpha: float = 1.0, inplace: bool = False) -> NodeData:
    return {"op": "elu", "of": [input], "slope": float(alpha)}


def hardtanh(input: int, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> NodeData:
    if (min_val, max_val) != (0, 6):
        raise ArchitectureError(
            f"hardtanh between {min_val} and {max_val}: only 0 and 6 (relu6) are supported",
            code="unsupported-arguments",
        )
    return {"op": "relu6", "of": [input]}


def log_softmax(input: int, dim: int | None = None, _stacklevel: int = 3, dtype: object = None) -> NodeData:
    if dim not in (1, -1) or dtype is not None:
        raise ArchitectureError(
            f"log_softmax over axis {dim}: only the class axis, 1, is supported", code="unsupported-arguments"
        )
    return {"op": "log_softmax", "of": [input]}


def dropout(input: int, p: float = 0.5, training: bool = True, inplace: bool = False) -> NodeData:
    if p > 0 and training:
        raise ArchitectureError(
            f"dropout with p = {p}: it draws from torch's global random state, so runs would not be reproducible; "
            "set p = 0 or use nn.Identity instead",
            code="active-dropout",
        )
    return {"of": [input]}


def identity(input: int) -> NodeData:
    return {"of": [input]}


def max_pool(
    input: int,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    dilation: Size = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> NodeData:
    if return_indices:
        raise ArchitectureError(
            "max_pool2d with return_indices: not supported; only values are returned", code="unsupported-arguments"
        )
    window = {"kernel": two(kernel_size), "stride": two(stride or kernel_size), "padding": two(padding)}
    return {"op": "max_pool", "of": [input], **window, "dilation": two(dilation), "round_up": ceil_mode}


def average_pool(
    input: int,
    kernel_size: Size,
    stride: Size | None = None,
    padding: Size = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> NodeData:
    if divisor_override is not None:
        raise ArchitectureError(
            "avg_pool2d with divisor_override: not supported; scale the result instead", code="unsupported-arguments"
        )
    window = {"kernel": two(kernel_size), "stride": two(stride or kernel_size), "padding": two(padding)}
    return {
        "op": "average_pool", "of": [input], **window, "round_up": ceil_mode, "count_padding": count_include_pad
    }  # fmt: skip


def adaptive_average_pool(input: int, output_size: Size) -> NodeData:
    return {"op": "adaptive_average_pool", "of": [input], "size": two(output_size)}


def adaptive_max_pool(input: int, output_size: Size, return_indices: bool = False) -> NodeData:
    if return_indices:
        raise ArchitectureError(
            "adaptive_max_pool2d with return_indices: not supported; only values are returned",
            code="unsupported-arguments",
        )
    return {"op": "adaptive_max_pool", "of": [input], "size": two(output_size)}


def mean(input: int, dim: Size | None = None, keepdim: bool = False, dtype: object = None) -> NodeData:
    axes = sorted(axis % 4 for axis in ((dim,) if isinstance(dim, int) else dim or ()))
    if axes != [2, 3] or dtype is not None:
        raise ArchitectureError(
            f"mean over axes {dim}: only height and width together, (2, 3), are supported", code="unsupported-arguments"
        )
    return {"op": "mean", "of": [input], "keep": keepdim}


def concatenate(tensors: Sequence[int], dim: int = 0) -> NodeData:
    if dim not in (1, -3):
        raise ArchitectureError(
            f"cat along axis {dim}: only the channel axis, 1, is supported", code="unsupported-arguments"
        )
    return {"op": "concatenate", "of": list(tensors)}


FUNCTIONS: dict[str, Callable[..., NodeData]] = {
    **{name: plain(name) for name in ("relu", "relu6", "silu", "hardswish", "hardsigmoid", "sigmoid", "tanh", "mish")},
    "softplus": softplus,
    "gelu": gelu,
    "leaky_relu": leaky_relu,
    "elu": elu,
    "hardtanh": hardtanh,
    "log_softmax": log_softmax,
    "dropout": dropout,
    "dropout2d": dropout,
    "contiguous": identity,
    "max_pool2d": max_pool,
    "avg_pool2d": average_pool,
    "adaptive_avg_pool2d": adaptive_average_pool,
    "adaptive_max_pool2d": adaptive_max_pool,
    "mean": mean,
    "cat": concatenate,
    "concat": concatenate,
}

# For each parameterless module: its function, and the attributes that are arguments of the function.
MODULES: dict[type[nn.Module], tuple[str, tuple[str, ...]]] = {
    nn.ReLU: ("relu", ("inplace",)),
    nn.ReLU6: ("relu6", ("inplace",)),
    nn.SiLU: ("silu", ("inplace",)),
    nn.Hardswish: ("hardswish", ("inplace",)),
    nn.Hardsigmoid: ("hardsigmoid", ("inplace",)),
    nn.Mish: ("mish", ("inplace",)),
    nn.Sigmoid: ("sigmoid", ()),
    nn.Tanh: ("tanh", ()),
    nn.Softplus: ("softplus", ("beta", "threshold")),
    nn.GELU: ("gelu", ("approximate",)),
    nn.LeakyReLU: ("leaky_relu", ("negative_slope", "inplace")),
    nn.ELU: ("elu", ("alpha", "inplace")),
    nn.Hardtanh: ("hardtanh", ("min_val", "max_val", "inplace")),
    nn.LogSoftmax: ("log_softmax", ("dim",)),
    nn.Dropout: ("dropout", ("p", "inplace")),
    nn.Dropout2d: ("dropout", ("p", "inplace")),
    nn.Identity: ("contiguous", ()),
    nn.MaxPool2d: ("max_pool2d", ("kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")),
    nn.AvgPool2d: (
        "avg_pool2d",
        ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad", "divisor_override"),
    ),
    nn.AdaptiveAvgPool2d: ("adaptive_avg_pool2d", ("output_size",)),
    nn.AdaptiveMaxPool2d: ("adaptive_max_pool2d", ("output_size", "return_indices")),
    nn.Flatten: ("flatten", ("start_dim", "end_dim")),
}


def two(size: Size) -> list[int]:
    """A size as [height, width]; a single number applies to both."""
    pair = [size, size] if isinstance(size, int) else list(size)
    return pair * 2 if len(pair) == 1 else pair
