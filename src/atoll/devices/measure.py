"""Measure a profile of this machine: single layers, one sample at a time, on one thread, median of repeats.

Pruning leads to widths that cannot all be timed. So every layer of a model is timed at several input and output widths,
and the profile interpolates between them (`atoll.devices`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import tomli_w
import torch
from torch import nn

from atoll.devices import DeviceProfile
from atoll.devices.table import LayerRow, LayerTable, LayerWork
from atoll.spaces.layers import Conv2d

SHARES = (0.25, 0.5, 0.75, 1.0)  # fractions of a layer's width
WARM_UP = 3
MIN_SECONDS = 1e-7  # the resolution of the clock


def measure_profile(
    layers: Sequence[LayerWork],
    repeats: int,
    base: DeviceProfile,
    description: str,
    watts: float | None = None,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> DeviceProfile:
    """`base` with this machine's layer table and speed. Its links are not measured and stay as they are.

    `watts` is the power drawn while computing; without it the table has no joules and `joules_per_mac` of `base`
    applies. `watch(done, total)` is called after every layer.
    """
    shapes = list(variants(layers))
    rows = []
    for number, layer in enumerate(shapes, start=1):
        seconds = time_layer(layer, repeats)
        rows.append(_row(layer, seconds, watts))
        watch(number, len(shapes))
    smallest = time_layer(LayerWork("linear", 1, 1, 1, 1, 1, 1, 1), repeats)
    speed = sum(row.macs for row in rows) / sum(row.seconds for row in rows)
    energy = base.joules_per_mac if watts is None else watts / speed
    changes: dict[str, Any] = {
        "description": description,
        "macs_per_second": speed,
        "joules_per_mac": energy,
        "seconds_per_layer": smallest,
        "layers": LayerTable(tuple(rows)),
    }
    return base.model_copy(update=changes)


def variants(layers: Iterable[LayerWork]) -> Iterator[LayerWork]:
    """Every distinct layer at all combinations of its width fractions, smallest first. Image channels stay whole."""
    found: dict[tuple[Any, ...], LayerWork] = {}
    for layer in layers:
        for share in SHARES:
            outputs = max(1, round(layer.outputs * share))
            for inputs in _inputs(layer, outputs):
                changed = replace(layer, inputs=inputs, outputs=outputs, macs=0)
                if changed.kernel:  # non-square kernels have no row
                    found.setdefault(changed.shape, changed)
    yield from sorted(found.values(), key=lambda layer: (layer.kind, layer.outputs * layer.inputs, layer.shape))


def _inputs(layer: LayerWork, outputs: int) -> list[int]:
    if layer.kind == "depthwise":
        return [outputs]
    if layer.inputs <= 4:  # an image's channels are not pruned
        return [layer.inputs]
    return sorted({max(1, round(layer.inputs * share)) for share in SHARES})


def time_layer(layer: LayerWork, repeats: int) -> float:
    """Median seconds for the forward pass of one sample through this layer, on one thread."""
    module, batch = _module(layer)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for _ in range(WARM_UP):
                module(batch)
            times = []
            for _ in range(repeats):
                start = time.perf_counter()
                module(batch)
                times.append(time.perf_counter() - start)
    finally:
        torch.set_num_threads(threads)
    return max(MIN_SECONDS, statistics.median(times))


def _module(layer: LayerWork) -> tuple[nn.Module, torch.Tensor]:
    """The layer and a sample for it. Constant weights, because values do not affect the time."""
    module: nn.Module
    with torch.device("meta"):
        if layer.kind == "linear":
            module = nn.Linear(layer.inputs, layer.outputs)
        else:
            groups = layer.inputs if layer.kind == "depthwise" else 1
            padding = layer.kernel // 2
            module = Conv2d(layer.inputs, layer.outputs, layer.kernel, layer.stride, padding, groups=groups, bias=False)
    module = module.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(0.5)
    if layer.kind == "linear":
        return module, torch.full((layer.width, layer.inputs), 0.5)
    # The input size: with an odd kernel and "same" padding, the output size times the stride.
    sides = [(size - 1) * layer.stride + 1 for size in (layer.height, layer.width)]
    return module, torch.full((1, layer.inputs, *sides), 0.5)


def _row(layer: LayerWork, seconds: float, watts: float | None) -> LayerRow:
    joules = None if watts is None else watts * seconds
    return LayerRow(
        kind=layer.kind,
        inputs=layer.inputs,
        outputs=layer.outputs,
        kernel=layer.kernel,
        stride=layer.stride,
        height=layer.height,
        width=layer.width,
        seconds=seconds,
        joules=joules,
    )


def profile_text(profile: DeviceProfile, remark: str) -> str:
    """A profile as TOML text that `atoll.devices.device_profile` can read."""
    plain = profile.model_dump(mode="json", exclude={"layers"}, exclude_none=True)
    parts = [f"# {remark}\n{tomli_w.dumps(plain)}"]
    for row in profile.layers.root:
        parts.append(f"[[layers]]\n{tomli_w.dumps(row.model_dump(mode='json', exclude_none=True))}")
    return "\n".join(parts)
