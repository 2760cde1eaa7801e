"""A master fitted to a federation's data: the settings' lists, or small ones that suit the data's shape."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.errors import ConfigError
from atoll.messages import Schema
from atoll.spaces.choice_plan import plan

SMALL_WIDTHS = (64, 64, 32, 32)  # of a table's blocks
SMALL_CHANNELS = (16, 16, 32, 32, 64, 64)  # two blocks a size: half the paper's depth, a quarter of its width or less


def architecture_for(
    schema: Schema,
    channels: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
    stem: int | None = None,
    expansion: int = 6,
) -> dict[str, Any]:
    """The master's architecture for this data, checked."""
    arch: dict[str, Any] = {"space": "choice", "input": list(schema.shape), "classes": schema.outputs}
    if schema.kind == "image":
        if widths is not None:
            raise ConfigError(
                f"widths = {list(widths)} are for tables and the data are images; set channels instead",
                code="inapplicable-setting",
            )
        arch["channels"] = list(channels if channels is not None else SMALL_CHANNELS)
        arch["stem"] = stem if stem is not None else arch["channels"][0] if arch["channels"] else 1
        arch["expansion"] = expansion
    else:
        if channels is not None:
            raise ConfigError(
                f"channels = {list(channels)} are for images and the data is a table; set widths instead",
                code="inapplicable-setting",
            )
        arch["widths"] = list(widths if widths is not None else SMALL_WIDTHS)
        arch["stem"] = stem if stem is not None else arch["widths"][0] if arch["widths"] else 1
    plan(arch)
    return arch
