"""Who holds how much of what."""

from __future__ import annotations

import numpy as np

from atoll.data.federated import Federated
from atoll.data.partition import Indices


def histogram(federated: Federated) -> Indices:
    """Rows per client (in the order of `names`) and class, over all parts; benchmark slices are not clients."""
    held = federated.holdings
    bounds = held.bounds[: len(federated.names)]
    classes = federated.schema.outputs
    sizes = bounds[:, 3] - bounds[:, 0]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    labels = held.y[held.rows[: federated.rows]]
    return np.bincount(owner * classes + labels, minlength=len(sizes) * classes).reshape(len(sizes), classes)
