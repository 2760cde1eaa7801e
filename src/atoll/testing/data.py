"""Small synthetic data that can be learnt: each class is a Gaussian cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from atoll.data import Federated
from atoll.rng import stream


def made_table(clients: int = 4, rows: int = 24, features: int = 6, classes: int = 3, **options: Any) -> Federated:
    """`rows` rows for each client."""
    x, y = _clouds(clients * rows, features, classes)
    return Federated.from_arrays(x, y, np.arange(clients * rows) % clients, **options)


def made_images(
    clients: int = 4,
    rows: int = 24,
    side: int = 8,
    channels: int = 1,
    classes: int = 3,
    **options: Any,
) -> Federated:
    """`rows` images for each client."""
    x, y = _clouds(clients * rows, channels * side * side, classes)
    return Federated.from_arrays(
        x.reshape(-1, channels, side, side),
        y,
        np.arange(clients * rows) % clients,
        **options,
    )


def _clouds(rows: int, features: int, classes: int) -> tuple[Any, Any]:
    rng = stream(0, "made data", features, classes)
    centres = rng.normal(0, 2, (classes, features))
    y = rng.integers(0, classes, rows)
    y[:classes] = np.arange(classes)  # every class occurs
    return (centres[y] + rng.normal(0, 1, (rows, features))).astype(np.float32), y
