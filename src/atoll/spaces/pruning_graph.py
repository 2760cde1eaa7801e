"""Which layers must shrink together: couplings as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atoll.spaces.widths_layers import Convolution, Known, Linear

Side = tuple[str, str]  # a layer and "in" or "out"; layers with one width have "out" only


@dataclass(frozen=True)
class Segment:
    """A stretch of one side of a layer: each filter of `unit` takes `times` places; without a unit, just places."""

    unit: str | None
    times: int


@dataclass(frozen=True)
class Couplings:
    """`units`: the layers whose filters make up each unit, in the network's order. `axes`: what each side consists of.

    A unit of one filter has nothing to remove; its places count as fixed.
    """

    units: Mapping[str, tuple[str, ...]]
    axes: Mapping[Side, tuple[Segment, ...]]

    def widths(self, layers: Mapping[str, Known]) -> dict[str, int] | None:
        """Each unit's width in a network of these couplings; None if the network has other ones."""
        found: dict[str, int] = {}
        waiting = dict(self.axes)
        while waiting:
            later = {}
            for (name, side), axis in waiting.items():
                rest = size(layers[name], side) - sum(
                    found.get(s.unit, 0) * s.times if s.unit else s.times for s in axis
                )
                unknown = sorted({s.unit for s in axis if s.unit and s.unit not in found})
                if len(unknown) > 1:
                    later[name, side] = axis
                elif unknown:
                    width, over = divmod(rest, sum(s.times for s in axis if s.unit == unknown[0]))
                    if over or width < 1:
                        return None
                    found[unknown[0]] = width
                elif rest:
                    return None
            if len(later) == len(waiting):
                return None
            waiting = later
        return {unit: found.get(unit, 1) for unit in self.units}


def size(layer: Known, side: str) -> int:
    """The width of one side of a layer."""
    if isinstance(layer, (Convolution, Linear)):
        return layer.inputs if side == "in" else layer.outputs
    return layer.channels


def sides(name: str, layer: Known) -> list[Side]:
    """The sides of a layer that have a width of their own."""
    return [(name, "in"), (name, "out")] if isinstance(layer, (Convolution, Linear)) else [(name, "out")]
