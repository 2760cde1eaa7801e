"""What kind of device a client is: how fast it computes and sends, and what that costs it in energy.

Profiles that ship are files beside this one; a user's own is a file of the same form, named by its path.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from atoll.errors import ConfigError, nearest

SHIPPED = ("phone", "board")


class DeviceProfile(BaseModel):
    """One kind of device. Speeds are sustained ones; a training pass counts three forward ones in MACs."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    description: str = ""
    macs_per_second: float = Field(gt=0)
    uplink: float = Field(gt=0)  # bytes per second
    downlink: float = Field(gt=0)  # bytes per second
    joules_per_mac: float = Field(default=0.0, ge=0)
    joules_per_byte: float = Field(default=0.0, ge=0)  # sent or received

    def seconds(self, macs: float, bytes_up: float, bytes_down: float) -> float:
        """Computing and sending, one after the other."""
        return macs / self.macs_per_second + bytes_up / self.uplink + bytes_down / self.downlink

    def joules(self, macs: float, bytes_up: float, bytes_down: float) -> float:
        return macs * self.joules_per_mac + (bytes_up + bytes_down) * self.joules_per_byte


def device_profile(name: str) -> DeviceProfile:
    """A shipped profile by its name, or a user's own by the path of its file."""
    if name in SHIPPED:
        text = resources.files("atoll.devices").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    elif name.endswith(".toml"):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"device {name!r}: cannot be read ({problem}); {nearest(name, SHIPPED)}") from None
    else:
        raise ConfigError(f"device {name!r}: unknown, and not a .toml file; {nearest(name, SHIPPED)}")
    try:
        return DeviceProfile.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"device {name!r}: not valid TOML: {problem}") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"device {name!r}: {place} = {first['input']!r}: {first['msg']}") from None
