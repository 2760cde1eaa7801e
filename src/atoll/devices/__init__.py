"""What kind of device a client is: how fast it computes and sends, and what that costs it in energy.

Profiles that ship are files beside this one; a user's own is a file of the same form, named by its path. A profile may
hold a table of layers (`[[layers]]`), given or written by `atoll devices measure`; then latency and energy of a network
are read from it, layer by layer:

1. a row of the same shape gives its figure (several such rows: their mean);
2. else the rows of the same kind are read as a curve over MACs: a straight line between the two nearest rows, below the
   smallest one towards `seconds_per_layer` at zero MACs, above the largest one in proportion;
3. a kind without rows takes `seconds_per_layer` + MACs / `macs_per_second`, and MACs x `joules_per_mac`.
"""

from __future__ import annotations

import tomllib
from importlib.resources import files
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from atoll.devices.table import LayerRow, LayerTable, LayerWork
from atoll.errors import ConfigError, nearest

SHIPPED = ("phone", "board")

__all__ = ["SHIPPED", "DeviceProfile", "LayerRow", "LayerTable", "LayerWork", "device_profile"]


class DeviceProfile(BaseModel):
    """One kind of device. Speeds are sustained ones; a training pass counts three forward ones in MACs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    description: str = ""
    macs_per_second: float = Field(gt=0)
    uplink: float = Field(gt=0)  # bytes per second
    downlink: float = Field(gt=0)  # bytes per second
    joules_per_mac: float = Field(default=0.0, ge=0)
    joules_per_byte: float = Field(default=0.0, ge=0)  # sent or received
    seconds_per_layer: float = Field(default=0.0, ge=0)  # taken by a layer whatever its size
    layers: LayerTable = LayerTable(())

    def seconds(self, macs: float, bytes_up: float, bytes_down: float) -> float:
        """Computing and sending, one after the other."""
        return macs / self.macs_per_second + bytes_up / self.uplink + bytes_down / self.downlink

    def joules(self, macs: float, bytes_up: float, bytes_down: float) -> float:
        return macs * self.joules_per_mac + (bytes_up + bytes_down) * self.joules_per_byte

    def layer_seconds(self, layer: LayerWork) -> float:
        """One sample's way forward through one layer."""
        found = self.layers.seconds(layer, self.seconds_per_layer)
        return found if found is not None else self.seconds_per_layer + layer.macs / self.macs_per_second

    def layer_joules(self, layer: LayerWork) -> float:
        """As `layer_seconds`, in energy; rows without joules are passed over."""
        found = self.layers.joules(layer)
        return found if found is not None else layer.macs * self.joules_per_mac


def device_profile(name: str) -> DeviceProfile:
    """A shipped profile by its name, or a user's own by the path of its file."""
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
