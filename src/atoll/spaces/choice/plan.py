"""Validate an architecture and derive the layers of its master. No modules are built.

    images  {"space": "choice", "input": [3, 32, 32], "classes": 10, "channels": [64, 64, 64, 128, ...],
             "stem": 64, "expansion": 6}
    tables  {"space": "choice", "input": [30], "classes": 2, "widths": [64, 64, 32], "stem": 64, "bottleneck": 4}

`stem` defaults to the first number of the list, `expansion` to 6, `bottleneck` to 4 and `norm` to "batch" (or "group").
A sub-model also has a "key".
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from atoll.core.messages import Schema
from atoll.errors import ArchitectureError, ConfigError, nearest
from atoll.spaces.choice.keys import Key, check_key
from atoll.spaces.choice.layers import (
    IMAGE_BRANCHES,
    TABLE_BRANCHES,
    Branch,
    BranchLayer,
    Geometry,
    image_branches,
    table_branches,
)
from atoll.spaces.cost import canonical
from atoll.spaces.norm import Norm, norm_of

PAPER_CHANNELS = (64, 64, 64, 128, 128, 128, 256, 256, 256, 512, 512, 512)

_COMMON = {"space", "input", "classes", "stem", "key", "norm"}


@dataclass(frozen=True)
class ChoicePlan:
    """Stem, blocks and head of a master. `branch_names` is indexed by branch number."""

    branch_names: tuple[str, ...]
    stem: Branch
    blocks: tuple[tuple[Branch, ...], ...]
    head: BranchLayer
    norm: Norm = "batch"


def plan(arch: Mapping[str, Any]) -> ChoicePlan:
    """The layers of this architecture's master. The key is ignored, so all sub-models share one cached plan."""
    return _plan(canonical({name: value for name, value in arch.items() if name != "key"}))


def key_of(arch: Mapping[str, Any]) -> Key | None:
    """The checked key of a sub-model; None for the master."""
    return check_key(arch["key"], len(plan(arch).blocks)) if "key" in arch else None


@lru_cache(maxsize=64)
def _plan(text: str) -> ChoicePlan:
    arch = json.loads(text)
    shape = _whole_numbers(arch, "input")
    if len(shape) == 3:
        return _image_plan(arch, shape)
    if len(shape) == 1:
        return _table_plan(arch, shape[0])
    raise ArchitectureError(
        f"input = {shape}: give [channels, height, width] for images or [features] for a table",
        code="invalid-input-shape",
    )


def _image_plan(arch: Mapping[str, Any], shape: list[int]) -> ChoicePlan:
    _only_known(arch, _COMMON | {"channels", "expansion"})
    channels = _whole_numbers(arch, "channels")
    stem, expansion = _whole_number(arch, "stem", channels[0]), _whole_number(arch, "expansion", 6)
    height, width = shape[1:]
    first = BranchLayer("first", shape[0], stem, height * width, 3)
    blocks, inputs = [], stem
    for number, outputs in enumerate(channels, start=1):
        before = (height, width)
        if outputs != inputs:
            _check_reduction(number, inputs, outputs, before, shape)
            height, width = (height + 1) // 2, (width + 1) // 2
        block = Geometry(inputs, outputs, before[0] * before[1], height * width)
        blocks.append(image_branches(block, expansion))
        inputs = outputs
    return ChoicePlan(IMAGE_BRANCHES, Branch((first,)), tuple(blocks), _head(arch, inputs), norm_of(arch))


def _check_reduction(number: int, inputs: int, outputs: int, size: tuple[int, int], shape: list[int]) -> None:
    if outputs < inputs:
        raise ArchitectureError(
            f"channels decrease from {inputs} to {outputs} at block {number}: a block must keep or increase its "
            f"channels; use {inputs} or {2 * inputs} there",
            code="falling-channels",
        )
    if outputs % 2:
        raise ArchitectureError(
            f"{outputs} channels at reduction block {number}: must be even, as the identity branch has two halves; "
            f"use {outputs + 1}",
            code="odd-channels",
        )
    if min(size) < 2:
        raise ArchitectureError(
            f"an image of {shape[1]}x{shape[2]} is too small: {size[0]}x{size[1]} remains before the reduction at "
            f"block {number}; keep the channels at {inputs} from there on, or use larger images",
            code="image-too-small",
        )


def _table_plan(arch: Mapping[str, Any], features: int) -> ChoicePlan:
    _only_known(arch, _COMMON | {"widths", "bottleneck"})
    widths = _whole_numbers(arch, "widths")
    stem, bottleneck = _whole_number(arch, "stem", widths[0]), _whole_number(arch, "bottleneck", 4)
    pairs = zip([stem, *widths[:-1]], widths, strict=True)
    blocks = tuple(table_branches(inputs, outputs, bottleneck) for inputs, outputs in pairs)
    first = Branch((BranchLayer("first", features, stem),))
    return ChoicePlan(TABLE_BRANCHES, first, blocks, _head(arch, widths[-1]), norm_of(arch))


def _head(arch: Mapping[str, Any], inputs: int) -> BranchLayer:
    classes = _whole_number(arch, "classes", None)
    return BranchLayer("head", inputs, classes, norm=False, relu=False, bias=True)


def _only_known(arch: Mapping[str, Any], known: set[str]) -> None:
    for name in arch:
        if name not in known:
            raise ArchitectureError(
                f"unknown setting '{name}' of a choice architecture; {nearest(name, known)}", code="unknown-setting"
            )


def _whole_numbers(arch: Mapping[str, Any], name: str) -> list[int]:
    values = arch.get(name)
    if not isinstance(values, list) or not values or not all(_positive(value) for value in values):
        raise ArchitectureError(
            f"'{name}' is {values!r}: give a list of whole numbers of at least 1", code="invalid-setting"
        )
    return values


def _whole_number(arch: Mapping[str, Any], name: str, default: int | None) -> int:
    value = arch.get(name, default)
    if not _positive(value):
        raise ArchitectureError(f"'{name}' is {value!r}: give a whole number of at least 1", code="invalid-setting")
    return int(value)


def _positive(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


SMALL_WIDTHS = (64, 64, 32, 32)  # of a table's blocks
SMALL_CHANNELS = (16, 16, 32, 32, 64, 64)  # two blocks per size: half the paper's depth, at most a quarter of its width


def architecture_for(
    schema: Schema,
    channels: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
    stem: int | None = None,
    expansion: int = 6,
    norm: Norm = "batch",
) -> dict[str, Any]:
    """The checked architecture of the master for this data."""
    arch: dict[str, Any] = {"space": "choice", "input": list(schema.shape), "classes": schema.outputs}
    if schema.kind == "image":
        if widths is not None:
            raise ConfigError(
                f"widths = {list(widths)}: widths apply to tables, but the data are images; set channels instead",
                code="inapplicable-setting",
            )
        arch["channels"] = list(channels if channels is not None else SMALL_CHANNELS)
        arch["stem"] = stem if stem is not None else arch["channels"][0] if arch["channels"] else 1
        arch["expansion"] = expansion
    else:
        if channels is not None:
            raise ConfigError(
                f"channels = {list(channels)}: channels apply to images, but the data is a table; set widths instead",
                code="inapplicable-setting",
            )
        arch["widths"] = list(widths if widths is not None else SMALL_WIDTHS)
        arch["stem"] = stem if stem is not None else arch["widths"][0] if arch["widths"] else 1
    if norm != "batch":  # left out otherwise: architectures without it are as they always were
        arch["norm"] = norm
    plan(arch)
    return arch
