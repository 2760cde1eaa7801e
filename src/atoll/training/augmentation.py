"""Random changes of training images: crop, mirror image, cutout; drawn for every batch from the task's stream.

Pixels that come from outside an image or are cut out are zero: the mean, where the data was standardised.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from atoll.core.messages import Schema
from atoll.errors import ConfigError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Augmentation:
    """What is done to the images of a batch, in this order. Zero means: not at all, and nothing is drawn for it."""

    crop: int = 0  # pixels of border on every side, out of which an image of the old size is cut
    flip: float = 0.0  # probability of a mirror image, left for right
    cutout: int = 0  # side of a square around a random pixel that is wiped out; it may reach over the edge

    @property
    def active(self) -> bool:
        return bool(self.crop or self.flip or self.cutout)

    def payload(self) -> dict[str, Any]:
        """As a task carries it; empty where there is nothing to do."""
        return {"augmentation": asdict(self)} if self.active else {}

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Augmentation:
        return cls(**payload.get("augmentation", {}))

    def check(self, schema: Schema, prefix: str = "") -> None:
        """It must suit the data: images, and not so small that nothing of them would be left.

        `prefix` is what the settings' names begin with.
        """
        for name, value in asdict(self).items():
            if value and schema.kind != "image":
                rule = "the data is a table, and only images are augmented; set it to 0"
                raise ConfigError(f"{prefix}{name} = {value}: {rule}", code="inapplicable-setting")
        for name in ("crop", "cutout"):
            side = min(schema.shape[1:], default=0)
            if getattr(self, name) >= max(side, 1):
                size = f"{schema.shape[1]}x{schema.shape[2]}"
                raise ConfigError(
                    f"{prefix}{name} = {getattr(self, name)}: images of {size} pixels take {side - 1} at most",
                    code="exceeds-image-size",
                )

    def __call__(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """New images (rows, channels, height, width), each changed in its own way; `x` stays as it was."""
        if not self.active:
            return x
        if self.crop or self.flip:
            x = self._moved(x, rng)
        return x * self._visible(x, rng) if self.cutout else x

    def _moved(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """Cropped and mirrored in one gathering of pixels."""
        import torch
        from torch.nn import functional

        rows, _, height, width = x.shape
        offsets = rng.integers(0, 2 * self.crop + 1, (2, rows, 1)) if self.crop else np.zeros((2, rows, 1), np.int64)
        down = offsets[0] + np.arange(height)
        across = np.broadcast_to(np.arange(width), (rows, width))
        if self.flip:
            mirrored = rng.random((rows, 1)) < self.flip
            across = np.where(mirrored, across[:, ::-1], across)
        border = functional.pad(x, (self.crop,) * 4).permute(0, 2, 3, 1)
        image, line, column = (
            torch.from_numpy(np.ascontiguousarray(index)).to(x.device)
            for index in (np.arange(rows)[:, None, None], down[:, :, None], (offsets[1] + across)[:, None, :])
        )
        return border[image, line, column].permute(0, 3, 1, 2)

    def _visible(self, x: Tensor, rng: np.random.Generator) -> Tensor:
        """One for every pixel that stays, zero for the others."""
        import torch

        rows, _, height, width = x.shape
        centres = [rng.integers(0, side, (rows, 1)) for side in (height, width)]
        inside = [
            (np.arange(side) >= centre - self.cutout // 2) & (np.arange(side) < centre - self.cutout // 2 + self.cutout)
            for side, centre in zip((height, width), centres, strict=True)
        ]
        visible = ~(inside[0][:, :, None] & inside[1][:, None, :])
        return torch.from_numpy(visible[:, None].astype(np.float32)).to(x.device)
