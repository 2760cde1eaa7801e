"""Device profiles: how fast a client computes and communicates, and how much energy that takes.

Built-in profiles are TOML files in this package; a user's profile is a file of the same format, given by its path. A
profile may contain a table of layers (`[[layers]]`), written by hand or by `atoll devices measure`. Latency and energy
of a network are then looked up layer by layer:

1. a row of the same shape gives its value (several such rows: their mean);
2. otherwise the rows of the same kind are interpolated linearly over MACs. Below the smallest row the line goes to
   `seconds_per_layer` at zero MACs; above the largest row the value grows in proportion to the MACs;
3. a kind without rows takes `seconds_per_layer` + MACs / `macs_per_second` seconds and MACs x `joules_per_mac` joules.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from atoll import lazy
from atoll.devices.table import LayerRow, LayerTable, LayerWork
from atoll.errors import ConfigError, nearest

if not TYPE_CHECKING:
    __getattr__ = lazy.submodules(__name__)

SHIPPED = ("phone", "board")

__all__ = ["SHIPPED", "DeviceProfile", "LayerRow", "LayerTable", "LayerWork", "device_profile"]


class DeviceProfile(BaseModel):
    """One kind of device. Speeds are sustained; in MACs, a training pass counts as three forward passes."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    description: str = ""
    macs_per_second: float = Field(gt=0)
    uplink: float = Field(gt=0)  # bytes per second
    downlink: float = Field(gt=0)  # bytes per second
    joules_per_mac: float = Field(default=0.0, ge=0)
    joules_per_byte: float = Field(default=0.0, ge=0)  # sent or received
    seconds_per_layer: float = Field(default=0.0, ge=0)  # fixed time per layer, whatever its size
    layers: LayerTable = LayerTable(())

    def seconds(self, macs: float, bytes_up: float, bytes_down: float) -> float:
        """Computing, then communicating, without overlap."""
        return macs / self.macs_per_second + bytes_up / self.uplink + bytes_down / self.downlink

    def joules(self, macs: float, bytes_up: float, bytes_down: float) -> float:
        return macs * self.joules_per_mac + (bytes_up + bytes_down) * self.joules_per_byte

    def layer_seconds(self, layer: LayerWork) -> float:
        """Seconds for the forward pass of one sample through one layer."""
        found = self.layers.seconds(layer, self.seconds_per_layer)
        return found if found is not None else self.seconds_per_layer + layer.macs / self.macs_per_second

    def layer_joules(self, layer: LayerWork) -> float:
        """Joules for the forward pass of one sample through one layer; table rows without joules are ignored."""
        found = self.layers.joules(layer)
        return found if found is not None else layer.macs * self.joules_per_mac


def device_profile(name: str) -> DeviceProfile:
    """A built-in profile by name, or a user's profile by the path of its file."""
    if name in SHIPPED:
        text = files("atoll.devices").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(
                f"device {name!r}: cannot be read ({problem}); {nearest(name, SHIPPED)}", code="file-unreadable"
            ) from None
    else:
        raise ConfigError(
            f"device {name!r}: unknown, and not a .toml file; {nearest(name, SHIPPED)}", code="unknown-device"
        )
    try:
        return DeviceProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"device {name!r}: not valid TOML: {problem}", code="not-toml") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(
            f"device {name!r}: {place} = {first['input']!r}: {first['msg']}", code="invalid-device-profile"
        ) from None
