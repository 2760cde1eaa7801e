"""The layer table of a device profile: time and energy of single layers, and interpolation between its rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, RootModel

LayerKind = Literal["convolution", "depthwise", "pointwise", "linear"]
KINDS: tuple[LayerKind, ...] = get_args(LayerKind)
Shape = tuple[str, int, int, int, int, int, int]


@dataclass(frozen=True)
class LayerWork:
    """One layer of a network and its work for one sample.

    `height` and `width` are those of the output (1 and 1 for a linear layer). `kernel` is the side of a square kernel,
    0 for any other. Depthwise: each output channel reads one input channel.
    """

    kind: LayerKind
    inputs: int
    outputs: int
    kernel: int
    stride: int
    height: int
    width: int
    macs: int

    @property
    def shape(self) -> Shape:
        """The key of an exact match in the table."""
        return (self.kind, self.inputs, self.outputs, self.kernel, self.stride, self.height, self.width)


class LayerRow(BaseModel):
    """One [[layers]] row of a profile: the layer's shape, and seconds and joules for one sample."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kind: LayerKind
    inputs: int = Field(ge=1)
    outputs: int = Field(ge=1)
    kernel: int = Field(default=1, ge=1)
    stride: int = Field(default=1, ge=1)
    height: int = Field(default=1, ge=1)  # of the output
    width: int = Field(default=1, ge=1)
    seconds: float = Field(ge=0)
    joules: float | None = Field(default=None, ge=0)

    @property
    def shape(self) -> Shape:
        return (self.kind, self.inputs, self.outputs, self.kernel, self.stride, self.height, self.width)

    @property
    def macs(self) -> int:
        per_output = self.kernel**2 * (1 if self.kind == "depthwise" else self.inputs)
        return per_output * self.outputs * self.height * self.width


@dataclass(frozen=True)
class _Lookup:
    """One quantity of a table: exact values by shape, and a curve over MACs for each kind."""

    exact: dict[Shape, float]
    curves: dict[str, list[tuple[int, float]]]

    def find(self, layer: LayerWork, floor: float) -> float | None:
        if layer.shape in self.exact:
            return self.exact[layer.shape]
        points = self.curves.get(layer.kind)
        return interpolate(points, layer.macs, floor) if points else None


class LayerTable(RootModel[tuple[LayerRow, ...]]):
    """The rows of a profile, with the lookup described in the package docstring."""

    model_config = ConfigDict(frozen=True)

    def seconds(self, layer: LayerWork, floor: float) -> float | None:
        """Seconds for one sample; None if the table has no rows of this kind."""
        return self._seconds.find(layer, floor)

    def joules(self, layer: LayerWork) -> float | None:
        """Joules for one sample; None if the table has no joules for this kind."""
        return self._joules.find(layer, 0.0)

    @cached_property
    def _seconds(self) -> _Lookup:
        return _lookup([(row, row.seconds) for row in self.root])

    @cached_property
    def _joules(self) -> _Lookup:
        return _lookup([(row, row.joules) for row in self.root if row.joules is not None])


def _lookup(rows: Sequence[tuple[LayerRow, float]]) -> _Lookup:
    by_shape: dict[Shape, list[float]] = {}
    macs: dict[Shape, int] = {}
    for row, value in rows:
        by_shape.setdefault(row.shape, []).append(value)
        macs[row.shape] = row.macs
    exact = {shape: sum(values) / len(values) for shape, values in by_shape.items()}
    kinds = {kind: [(macs[shape], exact[shape]) for shape in exact if shape[0] == kind] for kind in KINDS}
    return _Lookup(exact, {kind: curve(points) for kind, points in kinds.items() if points})


Points = Sequence[tuple[int, float]]  # (MACs, seconds or joules), ascending MACs


def curve(rows: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Rows of one kind by ascending MACs; rows of equal MACs are averaged."""
    by_macs: dict[int, list[float]] = {}
    for macs, value in rows:
        by_macs.setdefault(macs, []).append(value)
    return [(macs, sum(by_macs[macs]) / len(by_macs[macs])) for macs in sorted(by_macs)]


def interpolate(points: Points, macs: int, floor: float) -> float:
    """The value at `macs`, interpolated linearly between the two neighbouring rows.

    Below the smallest row the line goes to `floor` at zero MACs (the fixed cost of a layer). Above the largest row the
    value grows in proportion to the MACs.
    """
    largest, value = points[-1]
    if macs >= largest:
        return value * macs / largest
    for (low, below), (high, above) in pairwise([(0, floor), *points]):
        if low <= macs <= high:
            return below + (above - below) * (macs - low) / (high - low)
    raise AssertionError("points start at zero MACs")  # pragma: no cover
