"""What the parts of a DARTS network are made of, as descriptions: modules, names and costs all come from these."""

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
    """The edges that end in this node (0 to 3), by rising source."""
    return [edge for edge, (target, _) in enumerate(ENDS) if target == node]


def check_key(key: Any) -> Key:
    """One operation for every edge of both kinds of cells, as plain numbers; numbers of NumPy are taken too."""
    if not isinstance(key, Mapping) or set(key) != set(KINDS):
        raise ArchitectureError(
            f"a key is {_short(key)}: give an operation per edge for 'normal' and for 'reduce'", code="malformed-key"
        )
    return {kind: _operations(kind, key[kind]) for kind in KINDS}


def _operations(kind: str, values: Any) -> tuple[int, ...]:
    plain = values.tolist() if hasattr(values, "tolist") else values
    fits = isinstance(plain, Sequence) and len(plain) == EDGES
    if not fits or not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < len(OPERATIONS) for v in plain):
        raise ArchitectureError(
            f"the key's '{kind}' is {_short(values)}: give {EDGES} whole numbers from 0 to {len(OPERATIONS) - 1}",
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
        """Its parameters."""
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
        """Multiply-accumulates for this many pixels of output; norms and pools are not counted, as everywhere."""
        weights = sum(math.prod(shape) for name, shape in self.shapes.items() if name.endswith("weight"))
        return weights * pixels if self.kind in ("conv", "halve", "linear") else 0


Part = tuple[CellLayer, ...]  # layers one after the other


def stem(inputs: int, outputs: int) -> Part:
    """The only norm with a scale and a shift in a supernet: DARTS counts them among its weights."""
    return (CellLayer("conv", inputs, outputs, kernel=3), CellLayer("norm", outputs=outputs, affine=True))


def head(inputs: int, classes: int) -> Part:
    return (CellLayer("linear", inputs, classes),)


def preprocess(inputs: int, outputs: int, halve: bool, affine: bool) -> Part:
    """How a cell takes one of its inputs; it is halved in size where the cell between was a reduction."""
    kind = "halve" if halve else "conv"
    return (CellLayer("relu"), CellLayer(kind, inputs, outputs, stride=2 if halve else 1), _norm(outputs, affine))


def operation(word: str, channels: int, stride: int, retrained: bool) -> Part:
    """The layers of one operation; `none` has no part in a network.

    In a network that is retrained, norms have a scale and a shift and pools go without a norm, as in DARTS.
    """
    if word not in OPERATIONS or word == "none":
        raise ValueError(f"{word!r} is no operation that has layers")
    if word == "skip_connect":
        return preprocess(channels, channels, halve=True, affine=retrained) if stride == 2 else ()
    if word.endswith("pool_3x3"):
        pool = CellLayer("max" if word.startswith("max") else "average", channels, channels, kernel=3, stride=stride)
        return (pool,) if retrained else (pool, _norm(channels, affine=False))
    kernel = int(word[-1])
    if word.startswith("dil"):
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
