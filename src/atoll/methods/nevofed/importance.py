"""Permutation importance of the features that an evolved network reads: for the report, not charged to the search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from atoll.algorithms.neat.expression import expressed, used_inputs
from atoll.core import checks
from atoll.methods.base import Array, ClientInfo, Federation, Task
from atoll.methods.nevofed.clients import IMPORTANCE
from atoll.methods.nevofed.refinement import Server


def importance(server: Server, code: Array, holders: Sequence[ClientInfo], federation: Federation) -> dict[str, float]:
    """How much the mean fitness on these clients' test rows falls when the values of a feature are shuffled among a
    client's rows, by the number of the feature."""
    used = used_inputs(expressed(server.genome(code)))
    repeats, square = server.config.importance_repeats, (server.reading.classes, server.reading.classes)
    tasks = [
        Task(
            f"importance:{info.name}",
            info.name,
            IMPORTANCE,
            server.payload() | {"genome": code, "features": used, "repeats": repeats},
            returns={
                "confusions": checks.CountArray((len(used), *square), info.sizes["test"] * repeats, each=1),
                "confusion": checks.CountArray(square, info.sizes["test"]),
            },
            test_evaluation=True,
        )
        for info in holders
        if used and repeats and info.sizes["test"]
    ]
    falls = [
        server.fitness(reply.payload["confusion"][None]) - server.fitness(reply.payload["confusions"])
        for reply in federation.collect(tasks, minimum=0)
    ]
    values = np.mean(falls, axis=0).tolist() if falls else []
    return {str(place): value for place, value in zip(used, values, strict=False)}
