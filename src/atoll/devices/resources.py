"""The resources a network needs, in the units of budgets.

| kind           | for the forward pass of one sample                                                |
|----------------|-----------------------------------------------------------------------------------|
| `macs`         | multiply-accumulates of convolutions and linear layers (`spaces.cost`)            |
| `params`       | number of parameters                                                              |
| `upload_bytes` | size of the weights in an upload                                                  |
| `memory`       | bytes: all weights plus the peak of live activations (see `trace`)                |
| `latency`      | seconds on a device: the sum over its layers (see `atoll.devices`)                |
| `energy`       | joules on a device: the sum over its layers (see `atoll.devices`)                 |
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from atoll.devices import DeviceProfile
from atoll.devices.table import LayerKind, LayerWork
from atoll.errors import ConfigError, nearest
from atoll.spaces import Architecture, canonical, cost, skeleton

ROWS = 2  # batch norm needs more than one row

aten = torch.ops.aten
CONVOLUTIONS = {aten.convolution.default, aten._convolution.default}
PRODUCTS = {
    aten.addmm.default: 1,
    aten.mm.default: 0,
    aten.bmm.default: 0,
}  # index of the left factor among the arguments


@dataclass(frozen=True)
class NetworkTrace:
    """Convolutions and linear layers in execution order, and the peak of one sample's `activations` in bytes."""

    layers: tuple[LayerWork, ...]
    activations: int


def trace(module: nn.Module, shape: tuple[int, ...]) -> NetworkTrace:
    """Trace one forward pass through a network on the meta device.

    Activations are counted by this rule: every operation writes a new tensor, which is live from that operation to the
    last one that reads it (the network's input from the start, its output to the end). Views share memory. Parameters
    and tensors that are never read do not count. The peak is the largest sum of live tensors during one operation,
    without the working memory of kernels.
    """
    few, more = _Recorder(module), _Recorder(module)
    few.run(shape, ROWS)
    more.run(shape, ROWS + 1)
    # The size per sample is the growth with one more row: statistics over the batch do not grow.
    sizes = [after - before for before, after in zip(few.sizes, more.sizes, strict=True)]
    return NetworkTrace(tuple(few.layers), _peak(few.first, few.last, sizes))


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records every operation below autograd. Tensors are numbered by their storage."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.module = module
        self.layers: list[LayerWork] = []
        self.sizes: list[int] = []
        self.first: list[int] = []  # the operation that wrote it
        self.last: list[int] = []  # the last one that read it
        self._time = 0
        self._number: dict[int, int] = {}
        self._references: list[torch.Tensor] = []  # prevents reuse of storage, which would merge two tensors
        self._ignored = {tensor.untyped_storage()._cdata for tensor in self._fixed()}

    def run(self, shape: tuple[int, ...], rows: int) -> None:
        self._rows = rows
        batch = torch.empty((rows, *shape), device="meta")
        self._written(batch)
        with torch.no_grad(), self:
            output = self.module(batch)
        self._read(output)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._time += 1
        result = func(*args, **(kwargs or {}))
        for tensor in _tensors((args, kwargs)):
            self._read(tensor)
        for tensor in _tensors(result):
            self._written(tensor)
        if func in CONVOLUTIONS:
            self.layers.append(_convolution(args, result, self._rows))
        elif func in PRODUCTS:
            self.layers.append(_product(args[PRODUCTS[func]], result, self._rows))
        return result

    def _fixed(self) -> Iterator[torch.Tensor]:
        yield from self.module.parameters()
        yield from self.module.buffers()

    def _written(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata not in self._number and storage._cdata not in self._ignored:
            self._number[storage._cdata] = len(self.sizes)
            self._references.append(tensor)
            self.sizes.append(storage.nbytes())
            self.first.append(self._time)
            self.last.append(-1)

    def _read(self, tensor: torch.Tensor) -> None:
        number = self._number.get(tensor.untyped_storage()._cdata)
        if number is not None:
            self.last[number] = self._time


def _tensors(values: Any) -> Iterator[torch.Tensor]:
    return (value for value in tree_iter(values) if isinstance(value, torch.Tensor))


def _peak(first: list[int], last: list[int], sizes: list[int]) -> int:
    changes: dict[int, int] = {}
    for start, end, size in zip(first, last, sizes, strict=True):
        if end >= start:  # otherwise it is never read
            changes[start] = changes.get(start, 0) + size
            changes[end + 1] = changes.get(end + 1, 0) - size
    live = peak = 0
    for time in sorted(changes):
        live += changes[time]
        peak = max(peak, live)
    return peak


def _convolution(args: tuple[Any, ...], result: torch.Tensor, rows: int) -> LayerWork:
    source, weight, stride, groups = args[0], args[1], args[3], args[8]
    kernel, places = list(weight.shape[2:]), list(result.shape[2:])
    inputs, outputs = int(source.shape[1]), int(result.shape[1])
    side = kernel[0] if len(set(kernel)) == 1 else 0
    kind: LayerKind = "convolution"
    if groups == inputs and groups > 1:
        kind = "depthwise"
    elif side == 1 and groups == 1:
        kind = "pointwise"
    transposed = args[6]
    over = source if transposed else result  # a transposed convolution multiplies once per input position
    macs = math.prod(over.shape[2:]) * weight.numel() * over.shape[0] // rows
    return LayerWork(kind, inputs, outputs, side, max(stride), places[0], math.prod(places[1:]), macs)


def _product(left: torch.Tensor, result: torch.Tensor, rows: int) -> LayerWork:
    inputs, outputs = int(left.shape[-1]), int(result.shape[-1])
    times = result.numel() // outputs  # exceeds `rows` for a layer applied along a sequence
    return LayerWork("linear", inputs, outputs, 1, 1, 1, max(1, times // rows), times * inputs * outputs // rows)


@lru_cache(maxsize=4096)
def trace_of(text: str) -> NetworkTrace:
    """The trace of an architecture given as canonical JSON, cached."""
    arch: Mapping[str, Any] = json.loads(text)
    return trace(skeleton(arch), tuple(arch["input"]))


RESOURCES = ("macs", "params", "upload_bytes", "memory", "latency", "energy")
DEVICE_RESOURCES = frozenset({"latency", "energy"})


def check_resource(kind: str, has_device: bool) -> None:
    """Raise a `ConfigError` for an unknown kind, or one that needs a device if none is given."""
    if kind not in RESOURCES:
        raise ConfigError(f"resource {kind!r}: unknown; {nearest(kind, RESOURCES)}", code="unknown-resource")
    if kind in DEVICE_RESOURCES and not has_device:
        raise ConfigError(
            f"resource {kind!r}: depends on the device; name one: phone, board or a .toml file",
            code="device-not-named",
        )


def measure(arch: Architecture, kind: str, device: DeviceProfile | None = None) -> float:
    """How much of one resource this architecture needs. Expensive parts are cached per architecture."""
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
    # A space may count work outside layers (connections of an evolved network): use the device's general rates.
    rest = max(0, cost(arch).macs - sum(layer.macs for layer in traced.layers))
    if kind == "latency":
        return sum(map(device.layer_seconds, traced.layers)) + rest / device.macs_per_second
    return sum(map(device.layer_joules, traced.layers)) + rest * device.joules_per_mac
