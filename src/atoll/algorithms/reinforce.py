"""A softmax policy over the operations of each edge, and REINFORCE updates that tolerate late rewards.

Yao et al., "Federated Model Search via Reinforcement Learning", Eq. 4 to 15; docs/papers.md explains how unclear
passages are read. A policy is an array of logits (alpha in the paper) of shape (edges, operations); a key holds one
operation index per edge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array
from atoll.errors import ConfigError, nearest

Floats = npt.NDArray[np.float64]
Key = npt.NDArray[np.int64]
Correction = Literal["exact", "weighted", "taylor", "paper"]


def probabilities(logits: Array) -> Floats:
    """Eq. 4: the probability of each operation on each edge."""
    raised = np.exp(logits - logits.max(axis=-1, keepdims=True))  # the largest exponent is 0, so nothing overflows
    shares: Floats = raised / raised.sum(axis=-1, keepdims=True)
    return shares


def draw(logits: Array, rng: np.random.Generator) -> Key:
    """Eq. 5: sample one operation per edge."""
    edges = np.cumsum(probabilities(logits), axis=-1)
    # The last cumulative sum may round to below 1; leaving it out maps larger draws to the last operation.
    below = rng.random(logits.shape[:-1])[..., None] >= edges[..., :-1]
    key: Key = below.sum(axis=-1, dtype=np.int64)
    return key


def likeliest(logits: Array) -> Key:
    """The most probable operation on each edge; ties go to the first."""
    key: Key = np.argmax(logits, axis=-1).astype(np.int64)
    return key


def entropy(logits: Array) -> float:
    """Mean entropy per edge in nats: ln N for a uniform policy, 0 for a deterministic one."""
    share = probabilities(logits)
    logs = np.log(share, out=np.zeros_like(share), where=share > 0)
    return float(-(share * logs).sum(axis=-1).mean())


def log_probability(logits: Array, key: Array) -> float:
    """log p(key), summed over the edges."""
    raised = logits - logits.max(axis=-1, keepdims=True)
    logs = raised - np.log(np.exp(raised).sum(axis=-1, keepdims=True))
    return float(np.take_along_axis(logs, np.asarray(key)[..., None], axis=-1).sum())


def log_gradient(logits: Array, key: Array) -> Floats:
    """Eq. 12: the gradient of log p(key), which is 1 - p for the sampled operation and -p for the others."""
    chosen = np.arange(logits.shape[-1]) == np.asarray(key)[..., None]
    gradient: Floats = chosen - probabilities(logits)
    return gradient


def next_baseline(baseline: float, accuracies: Sequence[float], share: float) -> float:
    """Eq. 9 as printed: `share` (beta in the paper) weights the new mean, not the old baseline."""
    return share * float(np.mean(accuracies)) + (1 - share) * baseline


def reinforce(accuracies: Sequence[float], baseline: float, gradients: Sequence[Array]) -> Floats:
    """Eq. 8, 10 and 14: the mean of (accuracy - baseline) times the gradient of log p."""
    total = np.zeros(np.shape(gradients[0]))
    for accuracy, gradient in zip(accuracies, gradients, strict=True):
        total += (accuracy - baseline) * gradient
    return total / len(gradients)


def compensated(gradient: Array, now: Array, then: Array, strength: float) -> Array:
    """Eq. 13: g + lambda g g (now - then), a stale gradient moved to the current weights."""
    fresh: Array = gradient + gradient.dtype.type(strength) * gradient * gradient * (now - then)
    return fresh


MEMORY = 0.95  # of the mean square of gradients, as in DC-ASGD
TINY = 1e-7
MOST = 0.5  # of a weight's gradient, that an adaptive correction may be


def mean_squares(before: Mapping[str, Array], gradients: Mapping[str, Array]) -> dict[str, Array]:
    """The moving mean of squared gradients, per weight, of the tensors that have a gradient. A square may overflow."""

    def moved(mean: Array, own: Array) -> Array:
        memory = own.dtype.type(MEMORY)
        found: Array = memory * mean + (1 - memory) * own * own
        return found

    with np.errstate(over="ignore"):
        return {name: moved(before[name], own) for name, own in gradients.items()}


def compensated_adaptively(gradient: Array, now: Array, then: Array, squares: Array, strength: float) -> Array:
    """DC-ASGD-a (Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay Compensation", 2017): Eq. 13 with
    lambda over the root of the mean square, so that the term is of the gradient's own size whatever that is.

    The term is limited to half of the gradient, weight by weight. A weight that is seldom sampled has a mean square far
    below its next large gradient; without the limit its term would be many times that gradient.
    """
    kind = gradient.dtype.type
    term = kind(strength) / np.sqrt(squares + kind(TINY)) * gradient * gradient * (now - then)
    limit = kind(MOST) * np.abs(gradient)
    fresh: Array = gradient + np.clip(term, -limit, limit)
    return fresh


def corrected(key: Array, then: Array, now: Array, correction: Correction, strength: float) -> Floats:
    """The gradient of log p(key) for a key that was sampled from an older policy.

    exact     the gradient at the current policy; the server knows the key, so no approximation is needed
    weighted  the same times the importance weight p_now(key) / p_then(key)
    taylor    Eq. 15 with the opposite sign, because the curvature of log p is negative
    paper     Eq. 15 as printed, which moves away from the exact gradient
    """
    if correction == "exact":
        return log_gradient(now, key)
    if correction == "weighted":
        importance = math.exp(log_probability(now, key) - log_probability(then, key))
        return log_gradient(now, key) * importance
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
    """The gradient, scaled down to norm `limit` if its norm is larger."""
    norm = float(np.linalg.norm(gradient))
    return gradient * (limit / norm) if norm > limit else gradient


@dataclass(frozen=True)
class Ascent:
    """Gradient ascent with Adam. Clipping comes first, then weight decay (towards 0), as in torch."""

    lr: float = 0.003
    decay: float = 1e-4
    clip: float = 5.0
    betas: tuple[float, float] = (0.5, 0.999)
    epsilon: float = 1e-8

    def start(self, logits: Array) -> Floats:
        """The optimiser state before the first step: mean, mean of squares, number of steps."""
        return np.zeros((3, *logits.shape))

    def step(self, logits: Array, gradient: Array, memory: Array) -> tuple[Floats, Floats]:
        """The policy after one ascent step, and the new optimiser state."""
        update = clipped(gradient, self.clip) - self.decay * logits
        first, second = self.betas
        mean = first * memory[0] + (1 - first) * update
        squares = second * memory[1] + (1 - second) * update * update
        steps = memory[2] + 1
        scale = np.sqrt(squares / (1 - second**steps)) + self.epsilon
        moved: Floats = logits + self.lr * (mean / (1 - first**steps)) / scale
        return moved, np.stack([mean, squares, steps])


class WithoutSignal:
    """Policies that get the same rewards for keys that have nothing to do with them: how far chance alone leads.

    They are one array: policies x (logits, and the three rows of the optimiser's state).
    """

    def __init__(self, ascent: Ascent) -> None:
        self._ascent = ascent

    def start(self, logits: Array, count: int) -> Floats:
        """This many, all as the given policy."""
        return np.repeat(np.concatenate([logits[None], self._ascent.start(logits)])[None], count, axis=0)

    def step(self, policies: Array, accuracies: Sequence[float], baseline: float, rng: np.random.Generator) -> Floats:
        """All of them after one round with these rewards."""
        moved = []
        for logits, *memory in policies:
            gradients = [log_gradient(logits, draw(logits, rng)) for _ in accuracies]
            uphill = reinforce(accuracies, baseline, gradients)
            new, state = self._ascent.step(logits, uphill, np.stack(memory))
            moved.append(np.concatenate([new[None], state]))
        return np.stack(moved)

    @staticmethod
    def entropies(policies: Array) -> tuple[float, float]:
        """The median of their entropies, and the 5th percentile."""
        found = [entropy(logits) for logits, *_ in policies]
        return float(np.median(found)), float(np.percentile(found, 5))
