"""Settings that methods share which train networks on augmented images, and how they travel in a task."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from atoll.methods.base import MethodConfig
from atoll.training.augmentation import Augmentation


class AugmentedConfig(MethodConfig):
    """All of it is off by default. The usual values for photographs of 32x32: crop 4, flip 0.5, cutout 16."""

    crop: int = Field(default=0, ge=0)  # random crop out of the image with so many pixels of border
    flip: float = Field(default=0.0, ge=0, le=1)  # probability of a mirror image
    cutout: int = Field(default=0, ge=0)  # side of the square that is wiped out
    clip: float | None = Field(default=None, gt=0)  # longest gradient of a step

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(self.crop, self.flip, self.cutout)

    def extras(self) -> dict[str, Any]:
        """What a task for training carries of these settings: only what is on."""
        return self.augmentation.payload() | ({} if self.clip is None else {"clip": self.clip})
