"""What sparseness costs in time and saves in bytes: masked training over dense training, uploads over dense uploads.

    python benchmarks/sparse.py

One client's local round (600 rows, 5 epochs, batches of 50) of the paper's MLP and of a small CNN, whole and inside a
graph, timed in turns in processor seconds of one thread; the medians are compared. Then the bytes of one upload.
"""

# ruff: noqa: E402  (torch reads the environment when it is loaded)
from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np

from atoll.training.determinism import prepare_environment, single_thread

prepare_environment()

from atoll import spaces
from atoll.core import wire
from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.spaces.sparse import space as sparse
from atoll.spaces.sparse.graph import remove_smallest
from atoll.training.networks import network
from atoll.training.sgd import (
    TrainSettings,
    train,
)

REPEATS = 5
DATA = {"input": [1, 28, 28], "classes": 10}
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp 200-200": {"model": "mlp", "hidden": [200, 200]},
    "cnn 4, 64": {"model": "cnn", "filters": [4], "kernel": 3, "hidden": [64]},
}


def seconds(arch: dict[str, Any], weights: Tensors, rows: int) -> float:
    """Processor seconds of one client's local round."""
    rng = stream(1, "benchmark")
    x, y = rng.random((rows, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, rows)
    before = time.process_time()
    train(network(arch), weights, x, y, TrainSettings(5, 50, 0.1), rng, masks=sparse.masks(arch))
    return time.process_time() - before


def upload(arch: dict[str, Any], weights: Tensors, xi: float) -> int:
    """Bytes of one upload after removal."""
    along = sparse.pack(arch, weights)
    left = along.replaced({name: remove_smallest(along[name], xi) for name in sparse.masks(arch)})
    return wire.size({"weights": left}, digests=False)


def main() -> None:
    single_thread()
    for name, own in NETWORKS.items():
        dense = {"space": "fixed", **own, **DATA}
        rows = 600 if own["model"] == "mlp" else 100
        full = spaces.initial(dense, stream(1, "weights"))
        for epsilon in (20, 100):
            thin = {"space": "sparse", **own, **DATA, "epsilon": epsilon, "graph": 1}
            weights = spaces.initial(thin, stream(1, "weights"))
            times: dict[str, list[float]] = {"dense": [], "sparse": []}
            for _ in range(REPEATS):
                times["dense"].append(seconds(dense, full, rows))
                times["sparse"].append(seconds(thin, weights, rows))
            ratio = statistics.median(times["sparse"]) / statistics.median(times["dense"])
            share = spaces.cost(thin).params / spaces.cost(dense).params
            sizes = [upload(thin, weights, xi) / upload(dense, full, 0.0) for xi in (0.0, 0.3)]
            print(
                f"{name}, epsilon {epsilon}: {share:.0%} of the connections, {ratio:.2f} of the training time, "
                f"{sizes[0]:.3f} of the upload bytes (xi 0), {sizes[1]:.3f} (xi 0.3)",
            )


if __name__ == "__main__":
    main()
