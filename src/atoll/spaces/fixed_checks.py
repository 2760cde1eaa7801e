"""What a description of a fixed network may say: each fault is one line that names what fits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.errors import ArchitectureError


def positive(arch: Mapping[str, Any], key: str, default: int | None = None) -> int:
    """A whole number of at least 1."""
    value: Any = arch.get(key, default)
    if not _counts(value):
        raise ArchitectureError(
            f"{key} = {value!r} of {arch['model']}: give a whole number of at least 1", code="invalid-setting"
        )
    return int(value)


def sizes(arch: Mapping[str, Any], key: str, default: Sequence[int]) -> list[int]:
    """One or more layer sizes."""
    value = arch.get(key, default)
    if not isinstance(value, (list, tuple)) or not value or not all(map(_counts, value)):
        raise ArchitectureError(
            f"{key} = {value!r} of {arch['model']}: give one or more whole numbers of at least 1, "
            f"for instance {list(default)}",
            code="invalid-setting",
        )
    return list(value)


def widths(arch: Mapping[str, Any], default: Sequence[int]) -> list[int]:
    """The channels of every stage: `widths`, or the usual ones times `width`."""
    if "widths" in arch:
        if "width" in arch:
            raise ArchitectureError(
                f"{arch['model']} takes width or widths, not both: leave one out", code="conflicting-settings"
            )
        value = sizes(arch, "widths", default)
        if len(value) != len(default):
            raise ArchitectureError(
                f"widths of {arch['model']} holds {len(value)} numbers, it needs {len(default)}, "
                f"for instance {list(default)}",
                code="width-count-mismatch",
            )
        return value
    factor = arch.get("width", 1.0)
    if isinstance(factor, bool) or not isinstance(factor, (int, float)) or not 0 < factor <= 16:
        raise ArchitectureError(
            f"width = {factor!r} of {arch['model']}: give a factor above 0 and at most 16, for instance 0.25",
            code="invalid-setting",
        )
    return [max(1, round(size * factor)) for size in default]


def input_shape(arch: Mapping[str, Any]) -> tuple[int, ...]:
    """(features,) or (channels, height, width)."""
    shape = arch.get("input")
    if not isinstance(shape, (list, tuple)) or len(shape) not in (1, 3) or not all(map(_counts, shape)):
        raise ArchitectureError(
            f"input = {shape!r} of {arch['model']}: give [features] for a table or [channels, height, width] for "
            "images",
            code="invalid-input-shape",
        )
    return tuple(shape)


def require_image(arch: Mapping[str, Any], halvings: int) -> tuple[int, int, int]:
    """The shape of an image that can be halved so many times."""
    shape = input_shape(arch)
    if len(shape) != 3:
        raise ArchitectureError(
            f"{arch['model']} works on images and the input is a table of {shape[0]} features: use model 'mlp'",
            code="images-required",
        )
    channels, height, width = shape
    smallest = 2**halvings
    if min(height, width) < smallest:
        others = "'mlp'" if min(height, width) < 2 else "'mlp' or 'cnn'"
        raise ArchitectureError(
            f"an image of {height}x{width} is too small for {arch['model']}, which halves it {halvings} times and "
            f"needs at least {smallest}x{smallest}: use model {others}",
            code="image-too-small",
        )
    return channels, height, width


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
