"""Blocks that can be left out of a described network: stretches between two values of the same shape.

A cut is a value such that nothing after it reads what is before it. Between two cuts lies a stretch of the program that
can be replaced by nothing if both have the same shape. A block is such a stretch that begins after an operation and not
after a layer, ends with an activation, and holds a layer that produces channels: a convolution with its norm, a
separable convolution, a residual block. Of stretches with the same end the longest that holds no other block counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from atoll.spaces.pruned.layers import Convolution, Linear
from atoll.spaces.pruned.operations import Activation, Gelu, LayerCall, SlopedActivation
from atoll.spaces.pruned.plan import NetworkPlan, read


@dataclass(frozen=True)
class Block:
    """The nodes after value `start` up to value `end`, and the layers that only they use."""

    start: int
    end: int
    layers: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.layers[0] if len(self.layers) == 1 else f"{self.layers[0]} to {self.layers[-1]}"


def blocks(arch: Mapping[str, Any]) -> list[Block]:
    """The blocks that can be left out, in network order."""
    plan = read(arch)
    cuts = _cuts(plan)
    found: list[Block] = []
    for end in cuts:
        if end == 0 or not isinstance(plan.program[end - 1], (Activation, Gelu, SlopedActivation)):
            continue
        latest = max((block.end for block in found), default=0)
        for start in (cut for cut in cuts if latest <= cut < end and _begins(plan, cut)):  # the longest first
            layers = _layers(plan, start, end)
            same = plan.shapes[start] == plan.shapes[end]
            if same and any(isinstance(plan.layers[name], (Convolution, Linear)) for name in layers):
                found.append(Block(start, end, layers))
                break
    return found


def without(arch: Mapping[str, Any], block: Block) -> dict[str, Any]:
    """The description without a block."""
    length = block.end - block.start

    def moved(value: int) -> int:
        return value if value <= block.start else block.start if value == block.end else value - length

    program = [
        {**node, "of": [moved(value) for value in node["of"]]}
        for number, node in enumerate(arch["program"], start=1)
        if not block.start < number <= block.end
    ]
    layers = {name: layer for name, layer in arch["layers"].items() if name not in block.layers}
    return {**arch, "layers": layers, "program": program}


def names_without(names: Iterable[str], block: Block) -> list[str]:
    """Those of these weights that are left without a block."""
    gone = tuple(f"{name}." for name in block.layers)
    return [name for name in names if not name.startswith(gone)]


def _begins(plan: NetworkPlan, value: int) -> bool:
    return value == 0 or not isinstance(plan.program[value - 1], LayerCall)


def _cuts(plan: NetworkPlan) -> list[int]:
    """The values that separate what is before them from what is after them; the last value is the output."""
    last_use = dict.fromkeys(range(len(plan.shapes)), 0)
    for number, node in enumerate(plan.program, start=1):
        for value in node.of:
            last_use[value] = number
    furthest, cuts = 0, []
    for value in range(len(plan.program)):  # without the output
        if furthest <= value:
            cuts.append(value)
        furthest = max(furthest, last_use[value])
    return cuts


def _layers(plan: NetworkPlan, start: int, end: int) -> tuple[str, ...]:
    """The layers of this stretch; none if one of them is used elsewhere too."""
    inside = [node.name for node in plan.program[start:end] if isinstance(node, LayerCall)]
    outside = {node.name for node in (*plan.program[:start], *plan.program[end:]) if isinstance(node, LayerCall)}
    return () if outside & set(inside) else tuple(dict.fromkeys(inside))
