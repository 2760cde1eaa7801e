"""Augmentation of training images: random crop, horizontal flip and cutout, drawn per batch from the task's stream.

Pixels outside the image and pixels that are cut out become zero, which is the mean of standardised data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from atoll.core.messages import Schema
from atoll.errors import ConfigError


@dataclass(frozen=True)
class Augmentation:
    """The operations on a batch of images, applied in this order. Zero disables one: it draws no random numbers."""

    crop: int = 0  # pixels of zero padding on each side, before a window of the original size is cut out
    flip: float = 0.0  # probability of a horizontal flip
    cutout: int = 0  # side, in pixels, of a zeroed square around a random pixel; it may extend beyond the image

    @property
    def active(self) -> bool:
        return bool(self.crop or self.flip or self.cutout)

    def payload(self) -> dict[str, Any]:
        """The entry of a task's payload; empty if no operation is enabled."""
        return {"augmentation": asdict(self)} if self.active else {}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Augmentation:
        return cls(**payload.get("augmentation", {}))

    def check(self, schema: Schema, prefix: str = "") -> None:
        """Raise `ConfigError` unless the data are images and crop and cutout are smaller than they are.

        `prefix` precedes the names of the settings in the message.
        """
        for name, value in asdict(self).items():
            if value and schema.kind != "image":
                rule = "the data is a table, and only images can be augmented; set it to 0"
                raise ConfigError(f"{prefix}{name} = {value}: {rule}", code="inapplicable-setting")
        for name in ("crop", "cutout"):
            side = min(schema.shape[1:], default=0)
            if getattr(self, name) >= max(side, 1):
                size = f"{schema.shape[1]}x{schema.shape[2]}"
                raise ConfigError(
                    f"{prefix}{name} = {getattr(self, name)}: images of {size} pixels allow at most {side - 1}",
                    code="exceeds-image-size",
                )

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Augmented images (rows, channels, height, width), drawn independently per image; `x` is not changed."""
        if not self.active:
            return x
        if self.crop or self.flip:
            x = self._moved(x, rng)
        return x * self._kept(x, rng) if self.cutout else x

    def _moved(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Cropped and mirrored in one gathering of pixels."""
        rows, _, height, width = x.shape
        offsets = rng.integers(0, 2 * self.crop + 1, (2, rows, 1)) if self.crop else np.zeros((2, rows, 1), np.int64)
        down = offsets[0] + np.arange(height)
        across = np.broadcast_to(np.arange(width), (rows, width))
        if self.flip:
            flipped = rng.random((rows, 1)) < self.flip
            across = np.where(flipped, across[:, ::-1], across)
        padded = functional.pad(x, (self.crop,) * 4).permute(0, 2, 3, 1)
        image, line, column = (
            torch.from_numpy(np.ascontiguousarray(index)).to(x.device)
            for index in (np.arange(rows)[:, None, None], down[:, :, None], (offsets[1] + across)[:, None, :])
        )
        return padded[image, line, column].permute(0, 3, 1, 2)

    def _kept(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """One for every pixel that stays, zero for the others."""
        rows, _, height, width = x.shape
        centres = [rng.integers(0, side, (rows, 1)) for side in (height, width)]
        inside = [
            (np.arange(side) >= centre - self.cutout // 2) & (np.arange(side) < centre - self.cutout // 2 + self.cutout)
            for side, centre in zip((height, width), centres, strict=True)
        ]
        mask = ~(inside[0][:, :, None] & inside[1][:, None, :])
        return torch.from_numpy(mask[:, None].astype(np.float32)).to(x.device)
