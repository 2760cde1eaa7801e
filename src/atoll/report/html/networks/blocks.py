"""Networks as rows of blocks: branches of choice blocks, layers, remaining widths, sparse connections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atoll.report.html.charts.scales import count, percent
from atoll.report.html.markup import Html, svg, tag

WORDS = {"convolution": "conv", "depthwise": "depthwise", "pointwise": "1 x 1 conv", "linear": "linear"}
LONGEST = 60  # blocks that are drawn


@dataclass(frozen=True)
class DrawnBlock:
    """A part of a network: what it is, its sizes, and up to two bars (share, look, words)."""

    name: str
    lines: Sequence[str]
    kind: str = ""
    bars: Sequence[tuple[float, str, str]] = ()


def block_row(blocks: Sequence[DrawnBlock], label: str) -> Html:
    """The blocks in order of computation, as a list."""
    items = [
        tag(
            "li",
            tag("b", block.name),
            (tag("span", line) for line in block.lines if line),
            (_bar(share, look, words) for share, look, words in block.bars),
            class_=f"k-{block.kind}" if block.kind else None,
        )
        for block in blocks[:LONGEST]
    ]
    if len(blocks) > LONGEST:
        items.append(tag("li", tag("b", f"{len(blocks) - LONGEST} more"), class_="k-end"))
    return tag("ol", items, class_="blocks", aria_label=label)


def _bar(share: float, look: str, words: str) -> Html:
    full = svg("rect", x=0, y=0, width="100%", height=6, rx=3, class_="fill faint c6")
    part = svg(
        "rect", x=0, y=0, width=f"{100 * min(1.0, max(0.02, share)):.1f}%", height=6, rx=3, class_=f"fill {look}"
    )
    return tag("span", svg("svg", full, part, width="100%", height=6, aria_hidden="true"), words)


def choice_blocks(architecture: Mapping[str, Any]) -> list[DrawnBlock]:
    """A sub-model of choice blocks: the branch of each block, with its MACs."""
    from atoll.report.figures.networks import boxes

    found = boxes(architecture)
    most = max(1, *(box.macs for box in found))
    return [
        DrawnBlock(
            "skipped" if (skipped := box.kind == "identity" and box.macs == 0) else box.word,
            [box.width, box.size],
            "skipped" if skipped else box.kind,
            [] if skipped else [(box.macs / most, "c0", f"{count(box.macs)} MACs")],
        )
        for box in found
    ]


def layer_blocks(architecture: Mapping[str, Any]) -> list[DrawnBlock]:
    """The layers of any network in order of computation; of sparse ones the connections that are there."""
    from atoll.devices.resources import trace
    from atoll.spaces import skeleton

    shape = tuple(architecture["input"])
    layers = trace(skeleton(architecture), shape).layers
    most = max((layer.macs for layer in layers), default=1)
    graphs = _densities(architecture)
    blocks = [DrawnBlock("input", [" x ".join(map(str, shape)) if len(shape) > 1 else f"{shape[0]} inputs"], "end")]
    linear = 0
    for place, layer in enumerate(layers):
        last = place == len(layers) - 1
        kernel = f"{layer.kernel} x {layer.kernel}, " if layer.kernel > 1 else ""
        size = f"{layer.height} x {layer.width}" if layer.height * layer.width > 1 else ""
        words = [f"{layer.inputs} to {layer.outputs}", f"{kernel}{size}".rstrip(", ")]
        bars = [(layer.macs / max(1, most), "c0", f"{count(layer.macs)} MACs")]
        if layer.kind == "linear" and graphs:
            present, possible = graphs[linear]
            linear += 1
            bars = [(present / possible, "c2", f"{percent(present / possible)} of {count(possible)} connections")]
        blocks.append(DrawnBlock("output" if last else WORDS[layer.kind], words, "end" if last else "", bars))
    return blocks


def _densities(architecture: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Of a sparse network: connections that its graph has, and that a full one would have, layer by layer."""
    if architecture.get("space") != "sparse":
        return []
    import numpy as np

    from atoll.spaces.sparse.graph import masks

    return [(int(np.count_nonzero(mask)), int(mask.size)) for mask in masks(architecture).values()]


@dataclass(frozen=True)
class StartNetwork:
    """What networks were pruned from: the width and the label of each prunable layer."""

    widths: Mapping[str, int]
    labels: Mapping[str, str]

    @classmethod
    def of(cls, pruned: Sequence[Mapping[str, Any]]) -> StartNetwork:
        """The largest widths in any of these networks: those of the start network, if it is among them."""
        if not pruned:
            return cls({}, {})
        from atoll.spaces.pruned.pruning import labels, units

        widest: dict[str, int] = {}
        for architecture in pruned:
            for unit in units(dict(architecture)):
                widest[unit.name] = max(unit.width, widest.get(unit.name, 0))
        return cls(widest, labels(pruned))


def width_blocks(architecture: Mapping[str, Any], start: StartNetwork) -> list[DrawnBlock]:
    """A pruned network: of each prunable layer the width that is left."""
    from atoll.spaces.pruned.pruning import units

    return [
        DrawnBlock(start.labels[unit.name], [], "", [(unit.width / whole, "c2", f"{unit.width} of {whole}")])
        for unit in units(dict(architecture))
        for whole in [start.widths[unit.name]]
    ]
