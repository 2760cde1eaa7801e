"""A network with the arithmetic of its preparation in front: from numbers of raw rows to probabilities or scores."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from atoll.core.messages import Array
from atoll.errors import DataError
from atoll.preparation.value import Preparation
from atoll.store.models import Model

OutputKind = Literal["probabilities", "scores"]


def output_kind(model: Model) -> OutputKind:
    """Networks trained by cross-entropy give probabilities; evolved ones give scores, whose largest marks the class."""
    return "scores" if model.architecture.get("space") == "genome" else "probabilities"


class RawNetwork(nn.Module):
    """Takes what `network_input` returns: (rows, values) with NaN for gaps, or pixels as stored."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        refuse_unknown_statistics(model.preparation)
        self.prepare = PreparedRows(model.preparation)
        self.network = model.module()
        self.probabilities = output_kind(model) == "probabilities"

    def forward(self, rows: Tensor) -> Tensor:
        outputs: Tensor = self.network(self.prepare(rows))
        return torch.softmax(outputs, dim=1) if self.probabilities else outputs


class PreparedRows(nn.Module):
    """The arithmetic that `atoll.preparation.value` lists, in its order.

    Tables are prepared in double precision and rounded once: every runtime then gives the same inputs, which the steep
    functions of evolved networks need.
    """

    fill: Tensor | None
    mean: Tensor | None
    deviation: Tensor

    def __init__(self, preparation: Preparation) -> None:
        super().__init__()
        known = preparation.statistics
        assert known is not None
        self.image = preparation.image
        self.precision = torch.float64 if preparation.image is None else torch.float32
        self.logarithm = preparation.logarithm
        steps = 1 if preparation.window is None else preparation.window.steps
        self.columns = [
            (len(column.values), len(column.words) if column.kind == "category" and column.coding == "onehot" else 0)
            for column in preparation.columns * steps
        ]
        shape = (1, -1, 1, 1) if preparation.image is not None else (1, -1)
        for name, values in (("fill", known.fill), ("mean", known.mean), ("deviation", known.deviation)):
            held = torch.tensor(values, dtype=self.precision).reshape(shape) if values else None
            self.register_buffer(name, held)

    def forward(self, rows: Tensor) -> Tensor:
        x = rows.to(self.precision)
        if self.image is not None:
            x = x / self.image.largest
        elif any(words for _, words in self.columns):
            x = self._expanded(x)
        if self.fill is not None:
            x = torch.where(torch.isnan(x), self.fill, x)
        if self.logarithm:
            x = torch.sign(x) * torch.log1p(torch.abs(x))
        if self.mean is not None:
            x = (x - self.mean) / self.deviation
        return x.to(torch.float32)

    def _expanded(self, x: Tensor) -> Tensor:
        """With one input for each word of a one-hot category; neighbouring columns of one input are one block."""
        blocks, place, plain = [], 0, 0
        for width, words in self.columns:
            if words:
                if plain:
                    blocks.append(x[:, place - plain : place])
                    plain = 0
                codes = torch.arange(words, dtype=x.dtype)
                blocks.append((x[:, place : place + 1] == codes).to(x.dtype))
            else:
                plain += width
            place += width
        if plain:
            blocks.append(x[:, place - plain : place])
        return torch.cat(blocks, dim=1)


def refuse_unknown_statistics(preparation: Preparation) -> None:
    """A global model of clients that each scale by their own statistics cannot answer before it gets some."""
    if preparation.statistics is None:
        raise DataError(
            "the network was trained with data.scale = 'client': each client's mean and deviation stayed with it, so "
            "raw rows need those of their client; give rows of that client, or its preparation.json, as statistics "
            "(--statistics FILE)",
            code="statistics-missing",
        )


def outputs(module: nn.Module, numbers: Array, batch: int = 1000) -> Array:
    """The module's outputs for numbers of raw rows."""
    with torch.inference_mode():
        pieces = [
            module(torch.from_numpy(np.ascontiguousarray(numbers[start : start + batch]))).numpy()
            for start in range(0, len(numbers), batch)
        ]
    return np.concatenate(pieces)
