"""The removal of modified sparse evolutionary training (Zhu & Jin, Algorithm 2 and section II-C)."""

from __future__ import annotations

import math

import numpy as np

from atoll.messages import Array


def remove_smallest(weights: Array, fraction: float) -> Array:
    """The weights with the smallest of them set to zero: floor(fraction x non-zeros), by absolute value.

    What is zero already counts neither as removed nor as left. Of equals the first go.
    """
    if not 0 <= fraction < 1:
        raise ValueError(f"a removed fraction of {fraction} is not possible: use 0 or more and less than 1")
    held = np.flatnonzero(weights)
    count = math.floor(fraction * len(held) + 1e-9)  # 0.29 x 100 is 28.999999999999996 in floats
    if count == 0:
        return weights
    sizes = np.abs(weights.ravel()[held])
    bound = np.partition(sizes, count - 1)[count - 1]
    below = held[sizes < bound]
    ties = held[sizes == bound][: count - len(below)]
    left = weights.copy()
    flat = left.reshape(-1)
    flat[below] = 0
    flat[ties] = 0
    return left
