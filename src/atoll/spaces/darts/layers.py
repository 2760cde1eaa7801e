"""The layers of DARTS networks as plain data, from which modules, parameter names and costs are derived."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.errors import ArchitectureError

OPERATIONS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
NONE, SKIP = OPERATIONS.index("none"), OPERATIONS.index("skip_connect")
KINDS = ("normal", "reduce")
INPUTS, NODES = 2, 4
# (node, source state) of every edge
ENDS = tuple((node, source) for node in range(NODES) for source in range(INPUTS + node))
EDGES = len(ENDS)

Key = dict[str, tuple[int, ...]]


def edges_into(node: int) -> list[int]:
    """The edges that end in this node (0 to 3), by ascending source."""
    return [edge for edge, (target, _) in enumerate(ENDS) if target == node]


def check_key(key: Any) -> Key:
    """The key as plain numbers: one operation per edge for both kinds of cells. NumPy arrays are accepted."""
    if not isinstance(key, Mapping) or set(key) != set(KINDS):
        raise ArchitectureError(
            f"key = {_short(key)}: give one operation per edge for 'normal' and for 'reduce'", code="malformed-key"
        )
    return {kind: _operations(kind, key[kind]) for kind in KINDS}


def _operations(kind: str, values: Any) -> tuple[int, ...]:
    plain = values.tolist() if hasattr(values, "tolist") else values
    fits = isinstance(plain, Sequence) and len(plain) == EDGES
    if not fits or not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < len(OPERATIONS) for v in plain):
        raise ArchitectureError(
            f"key '{kind}' = {_short(values)}: give {EDGES} whole numbers from 0 to {len(OPERATIONS) - 1}",
            code="malformed-key",
        )
    return tuple(plain)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


Shapes = dict[str, tuple[int, ...]]
PARTS = ("even", "odd")  # the two convolutions of a factorised reduction


@dataclass(frozen=True)
class CellLayer:
    """One layer: "relu", "conv", "norm", "max" or "average" (3x3 pools), "halve" (factorised reduction), "linear"."""

    kind: str
    inputs: int = 0
    outputs: int = 0
    kernel: int = 1
    stride: int = 1
    dilation: int = 1
    groups: int = 1
    affine: bool = False  # of a norm

    @property
    def shapes(self) -> Shapes:
        """Names and shapes of its parameters."""
        if self.kind == "conv":
            return {"weight": (self.outputs, self.inputs // self.groups, self.kernel, self.kernel)}
        if self.kind == "halve":
            halves = (self.outputs // 2, self.outputs - self.outputs // 2)
            return {f"{part}.weight": (half, self.inputs, 1, 1) for part, half in zip(PARTS, halves, strict=True)}
        if self.kind == "norm" and self.affine:
            return {"weight": (self.outputs,), "bias": (self.outputs,)}
        if self.kind == "linear":
            return {"weight": (self.outputs, self.inputs), "bias": (self.outputs,)}
        return {}

    def macs(self, pixels: int) -> int:
        """Multiply-accumulates for this many output pixels; norms and pools are not counted."""
        weights = sum(math.prod(shape) for name, shape in self.shapes.items() if name.endswith("weight"))
        return weights * pixels if self.kind in ("conv", "halve", "linear") else 0


Part = tuple[CellLayer, ...]  # layers in sequence


def stem(inputs: int, outputs: int) -> Part:
    """The stem has the only affine norm of a supernet; DARTS counts its parameters among the weights."""
    return (CellLayer("conv", inputs, outputs, kernel=3), CellLayer("norm", outputs=outputs, affine=True))


def head(inputs: int, classes: int) -> Part:
    return (CellLayer("linear", inputs, classes),)


def preprocess(inputs: int, outputs: int, halve: bool, affine: bool) -> Part:
    """The preprocessing of one cell input; it halves the size if the cell in between was a reduction cell."""
    kind = "halve" if halve else "conv"
    return (CellLayer("relu"), CellLayer(kind, inputs, outputs, stride=2 if halve else 1), _norm(outputs, affine))


def operation(name: str, channels: int, stride: int, retrained: bool) -> Part:
    """The layers of one operation; `none` has no layers and is not allowed.

    In a retrained network norms are affine and pools have no norm, as in DARTS.
    """
    if name not in OPERATIONS or name == "none":
        raise ValueError(f"{name!r} is not an operation with layers")
    if name == "skip_connect":
        return preprocess(channels, channels, halve=True, affine=retrained) if stride == 2 else ()
    if name.endswith("pool_3x3"):
        pool = CellLayer("max" if name.startswith("max") else "average", channels, channels, kernel=3, stride=stride)
        return (pool,) if retrained else (pool, _norm(channels, affine=False))
    kernel = int(name[-1])
    if name.startswith("dil"):
        return _depthwise(channels, kernel, stride, dilation=2, affine=retrained)
    first = _depthwise(channels, kernel, stride, dilation=1, affine=retrained)
    return first + _depthwise(channels, kernel, 1, dilation=1, affine=retrained)


def _depthwise(channels: int, kernel: int, stride: int, dilation: int, affine: bool) -> Part:
    return (
        CellLayer("relu"),
        CellLayer("conv", channels, channels, kernel, stride, dilation, groups=channels),
        CellLayer("conv", channels, channels),
        _norm(channels, affine),
    )


def _norm(channels: int, affine: bool) -> CellLayer:
    return CellLayer("norm", outputs=channels, affine=affine)
