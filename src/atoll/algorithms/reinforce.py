"""A softmax policy over the operations of each edge, and how REINFORCE climbs it with late rewards.

Yao et al., "Federated Model Search via Reinforcement Learning", Eq. 4 to 15; readings are in docs/papers.md. A policy
is an array `alpha` of shape (edges, operations); a key holds the number of one operation for each edge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.errors import ConfigError, nearest

Floats = npt.NDArray[np.float64]
Key = npt.NDArray[np.int64]
Correction = Literal["exact", "weighted", "taylor", "paper"]


def probabilities(alpha: Array) -> Floats:
    """Eq. 4: how likely each operation is, edge by edge."""
    raised = np.exp(alpha - alpha.max(axis=-1, keepdims=True))  # the largest exponent is 0: nothing overflows
    shares: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def draw(alpha: Array, rng: np.random.Generator) -> Key:
    """Eq. 5: one operation for every edge."""
    edges = np.cumsum(probabilities(alpha), axis=-1)
    # Rounding may leave the last sum below 1, and a number drawn above it would be no operation's.
    below = rng.random(alpha.shape[:-1])[..., None] >= edges[..., :-1]
    key: Key = below.sum(axis=-1, dtype=np.int64)
    return key


def likeliest(alpha: Array) -> Key:
    """The operation of the highest probability on each edge; of equals the first."""
    key: Key = np.argmax(alpha, axis=-1).astype(np.int64)
    return key


def entropy(alpha: Array) -> float:
    """Mean entropy of an edge in nats: ln N when nothing is decided, 0 when everything is."""
    share = probabilities(alpha)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return float(-(share * logs).sum(axis=-1).mean())


def log_probability(alpha: Array, key: Array) -> float:
    """log p(key): the sum over its edges."""
    raised = alpha - alpha.max(axis=-1, keepdims=True)
    logs = raised - np.log(np.exp(raised).sum(axis=-1, keepdims=True))
    return float(np.take_along_axis(logs, np.asarray(key)[..., None], axis=-1).sum())


def log_gradient(alpha: Array, key: Array) -> Floats:
    """Eq. 12: the gradient of log p(key), 1 - p where the operation was drawn and -p elsewhere."""
    chosen = np.arange(alpha.shape[-1]) == np.asarray(key)[..., None]
    gradient: Floats = chosen - probabilities(alpha)
    return gradient


def next_baseline(baseline: float, accuracies: Sequence[float], share: float) -> float:
    """Eq. 9 as printed: `share` (beta) is the part of the new mean, not of what was before."""
    return share * float(np.mean(accuracies)) + (1 - share) * baseline


def reinforce(accuracies: Sequence[float], baseline: float, gradients: Sequence[Array]) -> Floats:
    """Eq. 8, 10 and 14: the mean of (accuracy - baseline) times the gradient of log p."""
    total = np.zeros(np.shape(gradients[0]))
    for accuracy, gradient in zip(accuracies, gradients, strict=True):
        total += (accuracy - baseline) * gradient
    return total / len(gradients)


def compensated(gradient: Array, now: Array, then: Array, strength: float) -> Array:
    """Eq. 13: g + lambda g g (now - then), what a gradient taken at old weights would be at the present ones."""
    fresh: Array = gradient + gradient.dtype.type(strength) * gradient * gradient * (now - then)
    return fresh


def corrected(key: Array, then: Array, now: Array, correction: Correction, strength: float) -> Floats:
    """The gradient of log p(key) for a key that was drawn under an older policy.

    exact     at the present policy: the server knows the key, so nothing need be approximated
    weighted  the same times p_now(key) / p_then(key): the key counts as often as it would be drawn now
    taylor    Eq. 15 with the sign of the descent form: the curvature of log p is negative
    paper     Eq. 15 as printed, which moves away from the exact gradient
    """
    if correction == "exact":
        return log_gradient(now, key)
    if correction == "weighted":
        likelier = math.exp(log_probability(now, key) - log_probability(then, key))
        return log_gradient(now, key) * likelier
    old = log_gradient(then, key)
    term: Floats = strength * old * old * (now - then)
    if correction == "taylor":
        return old - term
    if correction == "paper":
        return old + term
    raise ConfigError(
        f"correction = {correction!r}: unknown; {nearest(str(correction), get_args(Correction))}",
        code="unknown-correction",
    )


def clipped(gradient: Array, limit: float) -> Array:
    """The gradient, shortened to this length if it is longer."""
    length = float(np.linalg.norm(gradient))
    return gradient * (limit / length) if length > limit else gradient


@dataclass(frozen=True)
class Ascent:
    """Adam, climbing. The decay pulls alpha towards 0; the clip comes before both, as torch does it."""

    lr: float = 0.003
    decay: float = 1e-4
    clip: float = 5.0
    betas: tuple[float, float] = (0.5, 0.999)
    epsilon: float = 1e-8

    def start(self, alpha: Array) -> Floats:
        """The optimiser's memory before the first step: mean, mean of squares, number of steps."""
        return np.zeros((3, *alpha.shape))

    def step(self, alpha: Array, gradient: Array, memory: Array) -> tuple[Floats, Floats]:
        """The policy after one step along the gradient, and the memory."""
        update = clipped(gradient, self.clip) - self.decay * alpha
        first, second = self.betas
        mean = first * memory[0] + (1 - first) * update
        squares = second * memory[1] + (1 - second) * update * update
        steps = memory[2] + 1
        scale = np.sqrt(squares / (1 - second**steps)) + self.epsilon
        moved: Floats = alpha + self.lr * (mean / (1 - first**steps)) / scale
        return moved, np.stack([mean, squares, steps])
