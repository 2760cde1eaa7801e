"""What a network takes on a device, in the units that budgets are given in.

| kind           | of one sample's way forward                                                                         |
|----------------|-----------------------------------------------------------------------------------------------------|
| `macs`         | convolution and linear multiply-accumulates (`spaces.cost`)                                         |
| `params`       | parameters                                                                                          |
| `upload_bytes` | the weights on their way to the server                                                              |
| `memory`       | bytes: all weights, and the most activations that live at one time (rule: `spaces.tracing.trace`)   |
| `latency`      | seconds on a device: the sum of its layers (rule: `atoll.devices`)                                  |
| `energy`       | joules on a device, in the same way                                                                 |
"""

from __future__ import annotations

from atoll.devices import DeviceProfile
from atoll.errors import ConfigError, nearest
from atoll.spaces import Architecture, canonical, cost
from atoll.spaces.tracing import trace_of

RESOURCES = ("macs", "params", "upload_bytes", "memory", "latency", "energy")
NEED_A_DEVICE = frozenset({"latency", "energy"})


def check_resource(kind: str, has_device: bool) -> None:
    """A `ConfigError` for a kind that is unknown, or that needs a device and has none."""
    if kind not in RESOURCES:
        raise ConfigError(f"resource {kind!r}: unknown; {nearest(kind, RESOURCES)}", code="unknown-resource")
    if kind in NEED_A_DEVICE and not has_device:
        raise ConfigError(
            f"resource {kind!r}: reckoned for a device; name one: phone, board or a file (.toml)",
            code="device-not-named",
        )


def measure(arch: Architecture, kind: str, device: DeviceProfile | None = None) -> float:
    """What this architecture takes of one kind of resource; costly parts are computed once per architecture."""
    check_resource(kind, device is not None)
    if kind == "macs":
        return float(cost(arch).macs)
    if kind == "params":
        return float(cost(arch).params)
    if kind == "upload_bytes":
        return float(cost(arch).bytes)
    traced = trace_of(canonical(arch))
    if kind == "memory":
        return float(cost(arch).bytes + traced.activations)
    assert device is not None  # checked above
    # A space may count work that is no layer (the links of an evolved network): it goes at the device's plain rates.
    rest = max(0, cost(arch).macs - sum(layer.macs for layer in traced.layers))
    if kind == "latency":
        return sum(map(device.layer_seconds, traced.layers)) + rest / device.macs_per_second
    return sum(map(device.layer_joules, traced.layers)) + rest * device.joules_per_mac
