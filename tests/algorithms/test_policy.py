"""The softmax policy: its equations by hand, its optimiser against torch, and late rewards by enumeration."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms import reinforce
from atoll.algorithms.reinforce import Ascent
from atoll.errors import ConfigError
from atoll.rng import stream
from refusals import refused

# One edge whose probabilities are 1/2, 1/4, 1/4, and one of 1/3 each.
ALPHA = np.log(np.array([[2.0, 1.0, 1.0], [5.0, 5.0, 5.0]]))


def test_equation_4_by_hand() -> None:
    assert np.allclose(reinforce.probabilities(ALPHA), [[1 / 2, 1 / 4, 1 / 4], [1 / 3, 1 / 3, 1 / 3]], atol=1e-15)
    assert np.allclose(reinforce.probabilities(np.array([[1000.0, 1000.0, -1000.0]])), [[0.5, 0.5, 0.0]])


def test_equation_12_by_hand() -> None:
    """1 - p where the operation was drawn, -p elsewhere: the delta under Eq. 11 is printed the wrong way round."""
    expected = [[-1 / 2, 3 / 4, -1 / 4], [2 / 3, -1 / 3, -1 / 3]]
    assert np.allclose(reinforce.log_gradient(ALPHA, np.array([1, 0])), expected, atol=1e-15)


def test_equation_12_is_the_gradient_of_log_p() -> None:
    key, step = np.array([2, 1]), 1e-6
    for edge, operation in itertools.product(range(2), range(3)):
        moved = ALPHA.copy()
        moved[edge, operation] += step
        slope = (reinforce.log_probability(moved, key) - reinforce.log_probability(ALPHA, key)) / step
        assert slope == pytest.approx(reinforce.log_gradient(ALPHA, key)[edge, operation], abs=1e-5)


def test_the_probability_of_a_key_by_hand() -> None:
    assert reinforce.log_probability(ALPHA, np.array([0, 2])) == pytest.approx(np.log(1 / 2 * 1 / 3))


def test_equation_9_by_hand() -> None:
    """0.99 * (0.2 + 0.6) / 2 + 0.01 * 0.1 = 0.397: the share 0.99 is the new mean's."""
    assert reinforce.next_baseline(0.1, [0.2, 0.6], 0.99) == pytest.approx(0.397)


def test_equation_10_by_hand() -> None:
    """Accuracies 0.2 and 0.6 over a baseline of 0.4: ((-0.2) g1 + 0.2 g2) / 2 = 0.1 (g2 - g1)."""
    first, second = (reinforce.log_gradient(ALPHA, np.array(key)) for key in ([0, 0], [1, 0]))
    expected = [[-0.1, 0.1, 0.0], [0.0, 0.0, 0.0]]  # the edge on which both took the same operation says nothing
    assert np.allclose(reinforce.reinforce([0.2, 0.6], 0.4, [first, second]), expected, atol=1e-15)


def test_one_reply_alone_hardly_moves_the_policy() -> None:
    """The baseline is 0.99 of the same accuracy: a hundredth of the advantage is left."""
    baseline = reinforce.next_baseline(0.1, [0.6], 0.99)
    slope = reinforce.reinforce([0.6], baseline, [reinforce.log_gradient(ALPHA, np.array([1, 0]))])
    assert np.abs(slope).max() <= 0.005


def test_equation_13_by_hand() -> None:
    """2 + 0.5 * 2 * 2 * (1.5 - 1) = 3 and -1 + 0.5 * 1 * (0 - 2) = -2, in the gradient's own precision."""
    found = reinforce.compensated(
        np.array([2, -1], np.float32), np.array([1.5, 0], np.float32), np.array([1, 2], np.float32), 0.5
    )
    assert found.dtype == np.float32 and found.tolist() == [3.0, -2.0]


def test_equations_14_and_15_by_hand() -> None:
    """A key drawn at 1/2, 1/4, 1/4; by now the policy is at 1/3 each: Eq. 14 wants the gradient there."""
    then, now = np.log(np.array([[2.0, 1.0, 1.0]])), np.zeros((1, 3))
    key, log2 = np.array([0]), float(np.log(2))
    exact = reinforce.corrected(key, then, now, "exact", 1.0)
    assert np.allclose(exact, [[2 / 3, -1 / 3, -1 / 3]])
    # 1/3 now against 1/2 then: two thirds as likely
    assert np.allclose(reinforce.corrected(key, then, now, "weighted", 1.0), 2 / 3 * exact)
    # the old gradient is 1/2, -1/4, -1/4; only the first alpha moved, by -log 2
    assert np.allclose(reinforce.corrected(key, then, now, "taylor", 0.5), [[1 / 2 + log2 / 8, -1 / 4, -1 / 4]])
    assert np.allclose(reinforce.corrected(key, then, now, "paper", 0.5), [[1 / 2 - log2 / 8, -1 / 4, -1 / 4]])
    stale = reinforce.reinforce([0.9], 0.4, [exact])
    assert np.allclose(stale, 0.5 * exact)


def test_an_unknown_correction_is_named() -> None:
    unknown: Any = "exakt"
    with refused(ConfigError, "unknown-correction", "correction = 'exakt'", "'exact'"):
        reinforce.corrected(np.array([0]), np.zeros((1, 3)), np.zeros((1, 3)), unknown, 1.0)


# -- drawing ---------------------------------------------------------------------------------------------------------


def test_keys_are_drawn_by_their_probabilities() -> None:
    rng = stream(1, "keys")
    drawn = np.stack([reinforce.draw(ALPHA, rng) for _ in range(4000)])
    shares = [[np.mean(drawn[:, edge] == operation) for operation in range(3)] for edge in range(2)]
    assert np.allclose(shares, reinforce.probabilities(ALPHA), atol=0.03)  # three deviations are 0.024
    assert np.array_equal(reinforce.draw(ALPHA, stream(1, "keys")), drawn[0])


@given(st.integers(0, 1000))
def test_an_impossible_operation_is_never_drawn(seed: int) -> None:
    alpha = np.array([[0.0, -1e9, 0.0, -1e9], [-1e9, -1e9, 3.0, -1e9]])
    key = reinforce.draw(alpha, stream(seed, "impossible"))
    assert key[0] in (0, 2) and key[1] == 2


def test_likeliest_and_entropy_by_hand() -> None:
    assert reinforce.likeliest(ALPHA).tolist() == [0, 0]
    edges = (1.5 * np.log(2), np.log(3))  # 1/2 ln 2 + 2 * 1/4 ln 4
    assert reinforce.entropy(ALPHA) == pytest.approx(np.mean(edges))
    assert reinforce.entropy(np.array([[0.0, -1e9]])) == 0.0


# -- climbing --------------------------------------------------------------------------------------------------------


def test_clipping_by_hand() -> None:
    assert reinforce.clipped(np.array([6.0, 8.0]), 5.0).tolist() == [3.0, 4.0]
    assert reinforce.clipped(np.array([3.0, 4.0]), 5.0).tolist() == [3.0, 4.0]


def test_the_ascent_is_torchs_adam_on_the_negative() -> None:
    rng = stream(1, "ascent")
    alpha = rng.normal(size=(3, 4))
    parameter = torch.tensor(alpha.copy(), requires_grad=True)
    oracle = torch.optim.Adam([parameter], lr=0.003, betas=(0.5, 0.999), weight_decay=1e-4)
    ascent = Ascent()
    memory = ascent.start(alpha)
    for size in (0.1, 1.0, 30.0, 0.01):  # the third is clipped
        gradient = size * rng.normal(size=(3, 4))
        alpha, memory = ascent.step(alpha, gradient, memory)
        parameter.grad = torch.tensor(-gradient)
        torch.nn.utils.clip_grad_norm_([parameter], 5.0)
        oracle.step()
        assert np.allclose(alpha, parameter.detach().numpy(), rtol=0, atol=1e-8)


def test_a_step_goes_uphill() -> None:
    better = np.array([[1.0, -1.0]])
    alpha, _ = Ascent().step(np.zeros((1, 2)), better, Ascent().start(better))
    assert np.allclose(alpha, [[0.003, -0.003]])


# -- late rewards, by enumeration ------------------------------------------------------------------------------------

KEYS = [np.array(key) for key in itertools.product(range(3), repeat=2)]


class Drift:
    """Two edges of three operations whose policy moved from `then` to `now`; every key has a known accuracy."""

    def __init__(self, seed: int, far: float) -> None:
        rng = stream(seed, "drift")
        self.then = rng.normal(0, 0.5, (2, 3))
        self.now = self.then + rng.normal(0, far, (2, 3))
        self.accuracy = rng.random(len(KEYS))

    def mean(self, alpha: np.ndarray, values: list[Any]) -> Any:
        """The expectation over keys drawn from this policy."""
        return sum(
            np.exp(reinforce.log_probability(alpha, key)) * value for key, value in zip(KEYS, values, strict=True)
        )

    def gradients(self, correction: Any) -> list[np.ndarray]:
        if correction is None:
            return [reinforce.log_gradient(self.then, key) for key in KEYS]
        return [reinforce.corrected(key, self.then, self.now, correction, 1.0) for key in KEYS]

    def error_of_late_terms(self, correction: Any) -> float:
        """Of R(w_t) grad log p at the present policy (Eq. 14), for keys drawn then: mean squared distance."""
        wanted = [reinforce.log_gradient(self.now, key) for key in KEYS]
        found = self.gradients(correction)
        baseline = self.mean(self.then, list(self.accuracy))
        squares = [
            np.sum(((accuracy - baseline) * (one - other)) ** 2)
            for accuracy, one, other in zip(self.accuracy, found, wanted, strict=True)
        ]
        return float(self.mean(self.then, squares))

    def bias(self, correction: Any) -> float:
        """How far the expected late gradient is from the gradient of the expected accuracy at the present policy."""
        baseline = self.mean(self.then, list(self.accuracy))
        late = self.mean(
            self.then, [(r - baseline) * g for r, g in zip(self.accuracy, self.gradients(correction), strict=True)]
        )
        fresh = [reinforce.log_gradient(self.now, key) for key in KEYS]
        true = self.mean(self.now, [r * g for r, g in zip(self.accuracy, fresh, strict=True)])
        return float(np.linalg.norm(late - true))


@pytest.mark.parametrize("far", [0.05, 0.2, 0.5])
def test_the_exact_correction_beats_none_and_none_beats_the_printed_formula(far: float) -> None:
    """The error of what Eq. 15 approximates, averaged over 50 drifts, and in (nearly) every one of them."""
    drifts = [Drift(seed, far) for seed in range(50)]
    errors = {
        name: np.array([drift.error_of_late_terms(name) for drift in drifts]) for name in ("exact", "taylor", "paper")
    }
    none = np.array([drift.error_of_late_terms(None) for drift in drifts])
    assert np.all(errors["exact"] < 1e-24) and np.all(none > 0) and np.all(errors["paper"] > 0)
    assert errors["taylor"].mean() < none.mean() < errors["paper"].mean()
    assert np.mean(none < errors["paper"]) > 0.9


@pytest.mark.parametrize("far", [0.05, 0.5])
def test_only_the_weighted_correction_has_no_bias(far: float) -> None:
    """Keys sampled long ago occur too often or too rarely, which no gradient of log p can correct."""
    for seed in range(10):
        drift = Drift(seed, far)
        assert drift.bias("weighted") < 1e-12
        assert all(drift.bias(name) > 1e-5 for name in (None, "exact", "taylor", "paper"))


def test_adaptive_compensation_by_hand() -> None:
    """Mean square 0.95 * 0 + 0.05 * 4 = 0.2; lambda 0.5 / sqrt(0.2); 2 + lambda * 4 * (-0.1)."""
    gradient = np.array([2.0], np.float64)
    squares = reinforce.mean_squares({"w": np.zeros(1)}, {"w": gradient})["w"]
    assert squares == pytest.approx([0.2])
    found = reinforce.compensated_adaptively(gradient, np.array([0.0]), np.array([0.1]), squares, 0.5)
    assert found == pytest.approx([2 - 0.2 / np.sqrt(0.2)], rel=1e-6)


def test_an_adaptive_term_is_at_most_half_of_its_gradient() -> None:
    """With a mean square of a millionth the term would be a thousand times the gradient."""
    gradient, now, then = np.array([2.0, -2.0, 2.0]), np.array([0.0, 0.0, 2.0]), np.array([1.0, 1.0, 1.0])
    found = reinforce.compensated_adaptively(gradient, now, then, np.full(3, 1e-6), 0.5)
    assert found == pytest.approx([1.0, -3.0, 3.0])


def test_the_adaptive_term_has_the_gradients_size_whatever_the_scale() -> None:
    """With gradients a hundred times smaller the constant term nearly vanishes; the adaptive one does not."""
    shares = []
    for scale in (1.0, 0.01):
        gradient = np.full(3, scale)
        moved = reinforce.compensated_adaptively(gradient, np.zeros(3), np.full(3, 0.1), np.full(3, scale**2), 0.5)
        shares.append(np.linalg.norm(moved - gradient) / np.linalg.norm(gradient))
    assert shares[0] == pytest.approx(0.05, rel=1e-3) and shares[1] == pytest.approx(0.05, rel=1e-3)


def test_policies_without_signal_drift_and_one_with_signal_decides_sooner() -> None:
    """One edge of four operations. The first is better by far: a policy that is told so becomes more decided than those
    that get the same rewards for other keys."""
    ascent, rng = Ascent(lr=0.05), stream(1, "policies")
    chance = reinforce.WithoutSignal(ascent)
    logits = np.zeros((1, 4))
    policies, memory, baseline = chance.start(logits, 20), ascent.start(logits), 0.25
    assert policies.shape == (20, 4, 1, 4) and chance.entropies(policies) == (pytest.approx(np.log(4)),) * 2
    for _ in range(60):
        keys = [reinforce.draw(logits, rng) for _ in range(10)]
        rewards = [0.8 if key[0] == 0 else 0.3 for key in keys]
        baseline = reinforce.next_baseline(baseline, rewards, 0.99)
        uphill = reinforce.reinforce(rewards, baseline, [reinforce.log_gradient(logits, key) for key in keys])
        logits, memory = ascent.step(logits, uphill, memory)
        policies = chance.step(policies, rewards, baseline, rng)
    median, low = chance.entropies(policies)
    assert reinforce.entropy(logits) < low < median < np.log(4)
