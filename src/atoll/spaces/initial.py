"""Initial weights from an explicit random generator, never from torch's global state."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from atoll.core.messages import Array, Tensors


def kaiming_uniform(shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Tensors:
    """Torch's default for linear and convolution layers: weights and biases uniform within 1/sqrt(fan-in).

    A bias uses the fan-in of the weight of its layer. A one-dimensional weight belongs to a normalisation layer: ones,
    and zeros for its bias. Values are drawn in the order of `shapes`.
    """
    return Tensors({name: _draw(name, shapes, rng) for name in shapes})


def _draw(name: str, shapes: Mapping[str, tuple[int, ...]], rng: np.random.Generator) -> Array:
    shape = shapes[name]
    owner, _, kind = name.rpartition(".")
    weight = shapes.get(f"{owner}.weight" if owner else "weight", ()) if kind == "bias" else shape
    if len(weight) < 2:
        return np.zeros(shape, np.float32) if kind == "bias" else np.ones(shape, np.float32)
    bound = np.float32(1 / math.sqrt(math.prod(weight[1:])))
    return (rng.random(shape, dtype=np.float32) * 2 - 1) * bound
