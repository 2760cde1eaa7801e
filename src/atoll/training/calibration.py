"""Fixed batch-norm statistics, summed by clients over training data, so that a finished network works on a single row.

Each client sends sums and counts, the server adds them (`pooled`), and `fixed_module` divides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from atoll.core.messages import Array, Tensors
from atoll.spaces import build, skeleton
from atoll.spaces.norm import BatchMoments, BatchNorm, batch_norms
from atoll.training.batches import Rows, bounds
from atoll.training.networks import load
from atoll.training.sgd import Forward


def calibrate(
    module: nn.Module,
    weights: Tensors,
    x: Array,
    batch: int = 100,
    *,
    forward: Forward | None = None,
    device: str = "cpu",
) -> Tensors:
    """For every batch-norm layer, sums over its inputs in float64.

    `<layer>.count` is the number of values per channel; `<layer>.sum` and `<layer>.squares` are the sums of the values
    and of their squares, per channel. All three can be added over clients.
    """
    load(module, weights)
    layers = batch_norms(module)
    sums = {name: np.zeros((3, layer.channels)) for name, layer in layers.items()}
    hooks = [layer.register_forward_pre_hook(_collector(sums[name])) for name, layer in layers.items()]
    rows = Rows(x, np.zeros(len(x), np.int64), module, device)
    try:
        with torch.inference_mode():
            for start, stop in bounds(len(rows), batch):
                (forward or module)(rows.between(start, stop)[0])
    finally:
        for hook in hooks:
            hook.remove()
    return statistics_from(sums)


def statistics_from(sums: Mapping[str, Array]) -> Tensors:
    """What `calibrate` returns, from (3, channels) arrays of counts, sums and sums of squares by layer."""
    fields: dict[str, Array] = {}
    for name, (count, total, squares) in sums.items():
        fields |= {f"{name}.count": count[:1].copy(), f"{name}.sum": total.copy(), f"{name}.squares": squares.copy()}
    return Tensors(fields)


@contextmanager
def collecting(layers: Mapping[str, BatchNorm], moments: dict[str, list[BatchMoments]]) -> Iterator[None]:
    """While this lasts, `moments` gets those of each batch, by layer; outputs do not depend on it."""
    for name, layer in layers.items():
        layer.moments = moments.setdefault(name, [])
    try:
        yield
    finally:
        for layer in layers.values():
            layer.moments = None


def sums_of(moments: Sequence[BatchMoments]) -> Array:
    """Counts, sums and sums of squares: an array of shape (3, channels of all these). They are those of `calibrate` but
    for the rounding of float32. All at once: for small networks one by one would take as long as the evaluation."""
    if not moments:
        return np.zeros((3, 0))
    mean, inverse = (
        torch.cat(parts).cpu().numpy().astype(np.float64)
        for parts in ([one.mean for one in moments], [one.inverse for one in moments])
    )
    channels = [len(one.mean) for one in moments]
    values = np.repeat([float(one.values) for one in moments], channels)
    epsilon = np.repeat([one.epsilon for one in moments], channels)
    return np.stack([values, values * mean, values * (inverse**-2.0 - epsilon + mean * mean)])


def statistics_form(arch: Mapping[str, Any]) -> Tensors:
    """Zeros with the names, shapes and dtypes that `calibrate` returns for this architecture."""
    form: dict[str, Array] = {}
    for name, layer in batch_norms(skeleton(arch)).items():
        form[f"{name}.count"] = np.zeros(1)
        form[f"{name}.sum"] = np.zeros(layer.channels)
        form[f"{name}.squares"] = np.zeros(layer.channels)
    return Tensors(form)


def pooled(clients: Iterable[Mapping[str, Array]]) -> Tensors:
    """The statistics of several clients, added in the given order."""
    total: dict[str, Array] = {}
    for statistics in clients:
        for name, array in statistics.items():
            total[name] = total[name] + array if name in total else array
    return Tensors(total)


def fixed_module(arch: Mapping[str, Any], weights: Tensors, statistics: Mapping[str, Array]) -> nn.Module:
    """An ordinary module in evaluation mode, with these weights and with batch norm fixed to these statistics."""
    module = build(arch)
    load(module, weights)
    for name, layer in batch_norms(module).items():
        count = float(statistics[f"{name}.count"][0]) if f"{name}.count" in statistics else 0.0
        if count < 1:
            raise ValueError(f"layer {name!r} has no batch-norm statistics: calibrate on a client with training rows")
        mean = statistics[f"{name}.sum"] / count
        variance = np.maximum(statistics[f"{name}.squares"] / count - mean * mean, 0.0)
        layer.fix(torch.tensor(mean, dtype=torch.float32), torch.tensor(variance, dtype=torch.float32))
    return module.eval()


class TrainedNetwork(nn.Module):
    """A finished network that takes a batch, or a single row or image of `dimensions` axes."""

    def __init__(self, network: nn.Module, dimensions: int) -> None:
        super().__init__()
        self.network, self.dimensions = network, dimensions
        self.eval()

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.network(x[None])[0] if x.dim() == self.dimensions else self.network(x)
        return found


def _collector(sums: Array) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
    def collect(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        assert isinstance(layer, BatchNorm)
        x = inputs[0].detach().to("cpu", torch.float64)
        axes = [axis for axis in range(x.dim()) if axis != 1]
        sums[0] += x.numel() // layer.channels
        sums[1] += x.sum(axes).numpy()
        sums[2] += (x * x).sum(axes).numpy()

    return collect
