"""Cutting a network along its couplings: the description, and the arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from atoll.messages import Array, Tensors
from atoll.spaces.pruning_graph import Couplings, Segment, sides
from atoll.spaces.pruning_known import couplings
from atoll.spaces.widths_layers import Convolution, Known, Linear
from atoll.spaces.widths_plan import read


@dataclass(frozen=True)
class Prunable:
    """A network with its units: `widths` is how many filters each has."""

    arch: Mapping[str, Any]
    layers: Mapping[str, Known]
    found: Couplings
    widths: Mapping[str, int]

    @classmethod
    def of(cls, arch: Mapping[str, Any]) -> Prunable:
        plan = read(arch)
        return cls(arch, plan.layers, *couplings(plan))

    def described(self, target: Mapping[str, int]) -> dict[str, Any]:
        """The description with these widths; it shares what does not change with the present one."""
        after = {**self.widths, **target}
        changed = {}
        for name in self._touched(target):
            total = {
                side: sum(stop - start for start, _, stop in _stretches(self.found.axes[name, side], after))
                for _, side in sides(name, self.layers[name])
            }
            if isinstance(self.layers[name], (Convolution, Linear)):
                new = {"inputs": total["in"], "outputs": total["out"]}
            else:
                new = {"channels": total["out"]}
            changed[name] = {**self.arch["layers"][name], **new}
        return {**self.arch, "layers": {**self.arch["layers"], **changed}}

    def cut(self, weights: Tensors, chosen: Mapping[str, Array]) -> Tensors:
        """The weights with the chosen filters of some units only, in the order they are given in."""
        kept = {unit: np.arange(width) for unit, width in self.widths.items()} | dict(chosen)
        changed: dict[str, Array] = {}
        for name in self._touched(chosen):
            changed |= self._cut_layer(name, weights, kept)
        return weights.replaced(changed)

    def norms(self, weights: Tensors, unit: str) -> Array:
        """The L2 norm of each filter of a unit, over all layers that make its channels."""
        width = self.widths[unit]
        squares = np.zeros(width)
        for name in self.found.units[unit]:
            weight = weights[f"{name}.weight"]
            own = np.square(weight.reshape(len(weight), -1), dtype=np.float64).sum(1)
            for start, segment, stop in _stretches(self.found.axes[name, "out"], self.widths):
                if segment.unit == unit:
                    squares += own[start:stop].reshape(width, segment.times).sum(1)
                elif width == 1 and segment.unit is None:  # its places are not told from fixed ones, and need not be
                    squares += own[start:stop].sum()
        norms: Array = np.sqrt(squares)
        return norms

    def _touched(self, units: Mapping[str, Any]) -> list[str]:
        """The layers with places of these units."""
        names = [name for (name, _), axis in self.found.axes.items() if any(part.unit in units for part in axis)]
        return list(dict.fromkeys(names))

    def _cut_layer(self, name: str, weights: Tensors, kept: Mapping[str, Array]) -> dict[str, Array]:
        layer = self.layers[name]
        out = _places(self.found.axes[name, "out"], self.widths, kept)
        cut: dict[str, Array] = {}
        for parameter in (f"{name}.weight", f"{name}.bias"):
            if parameter in weights:
                cut[parameter] = weights[parameter][out]
        if isinstance(layer, (Convolution, Linear)):
            places = _places(self.found.axes[name, "in"], self.widths, kept)
            groups = layer.groups if isinstance(layer, Convolution) else 1
            # a filter sees the inputs of its group only, and every group loses the same ones
            cut[f"{name}.weight"] = cut[f"{name}.weight"][:, places[: len(places) // groups]]
        return cut


def _stretches(axis: Sequence[Segment], widths: Mapping[str, int]) -> Iterator[tuple[int, Segment, int]]:
    """Where each segment of a side begins and ends."""
    start = 0
    for segment in axis:
        stop = start + segment.times * (widths[segment.unit] if segment.unit else 1)
        yield start, segment, stop
        start = stop


def _places(axis: Sequence[Segment], widths: Mapping[str, int], kept: Mapping[str, Array]) -> Array:
    """The places of a side that stay."""
    parts = []
    for start, segment, stop in _stretches(axis, widths):
        if segment.unit is None:
            parts.append(np.arange(start, stop))
        else:
            parts.append(start + (kept[segment.unit][:, None] * segment.times + np.arange(segment.times)).ravel())
    return np.concatenate(parts)
