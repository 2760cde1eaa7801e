"""How long it takes to send a round's sub-models, by who gets which: the study of the reinforcement paper's Fig. 7."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from atoll.algorithms.sampling import Rule, assign, transmitted
from atoll.simulation.links import Link


@dataclass(frozen=True)
class Latency:
    """Seconds until the last participant has its sub-model, and the mean over participants."""

    maximal: float
    mean: float


def round_latency(
    sizes: Sequence[float],
    links: Sequence[Link],
    at: float,
    rule: Rule,
    rng: np.random.Generator,
) -> Latency:
    """Of a round that begins at `at`: one sub-model, of `sizes` bytes, for each link.

    The server knows the data rates of that moment and nothing of how they will change.
    """
    order = assign(sizes, [link.rate(at) for link in links], rule, rng)
    bytes_down = transmitted(sizes, order, rule)
    seconds = [link.download(at, size) - at for link, size in zip(links, bytes_down, strict=True)]
    return Latency(max(seconds), sum(seconds) / len(seconds))
