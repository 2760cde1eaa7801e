"""Batches of one part of a client's data, on the device."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from atoll.core.messages import Array


def bounds(rows: int, batch: int) -> list[tuple[int, int]]:
    """(start, stop) of every batch. A single remaining row joins the previous batch: batch norm needs two rows."""
    if batch < 1:
        raise ValueError(f"batch = {batch}: give at least 1")
    edges = [*range(0, rows, batch), rows]
    if len(edges) > 2 and batch > 1 and edges[-1] - edges[-2] == 1:
        del edges[-2]
    return list(pairwise(edges))


class Rows:
    """One part of a client's data, moved to the device once; each batch is a copy.

    The copies have the same alignment whatever that of the source arrays, so equal rows give equal bits. Images are
    stored channels-last if the network has convolutions: a training step then takes 0.6 to 0.9 of the time.
    """

    def __init__(self, x: Array, y: Array, module: nn.Module, device: str = "cpu") -> None:
        if len(x) != len(y):
            raise ValueError(f"{len(x)} rows and {len(y)} labels: give one label per row")
        self.channels_last = x.ndim == 4 and any(parameter.dim() == 4 for parameter in module.parameters())
        source = x.transpose(0, 2, 3, 1) if self.channels_last else x
        self.x = torch.tensor(np.ascontiguousarray(source, dtype=np.float32), device=device)
        self.y = torch.tensor(np.ascontiguousarray(y, dtype=np.int64), device=device)
        self._batches: dict[int, tuple[Tensor, Tensor]] = {}

    def __len__(self) -> int:
        return len(self.y)

    def order(self, rng: np.random.Generator) -> Tensor:
        """A random permutation of the row indices."""
        return torch.from_numpy(rng.permutation(len(self))).to(self.x.device)

    def take(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of these indices and their labels. The next call overwrites both tensors.

        Allocating new ones per batch slowed the training step of a small network by a tenth.
        """
        size = len(index)
        if size not in self._batches:
            self._batches[size] = (self.x.new_empty((size, *self.x.shape[1:])), self.y.new_empty(size))
        x, y = self._batches[size]
        torch.index_select(self.x, 0, index, out=x)
        torch.index_select(self.y, 0, index, out=y)
        return self._shaped(x), y

    def between(self, start: int, stop: int) -> tuple[Tensor, Tensor]:
        """Rows `start` to `stop` (exclusive) and their labels."""
        return self._shaped(self.x[start:stop].clone()), self.y[start:stop].clone()

    def _shaped(self, x: Tensor) -> Tensor:
        return x.permute(0, 3, 1, 2) if self.channels_last else x
