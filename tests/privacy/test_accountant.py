"""The accountant: against Opacus' PRV, against what is known, and in the noise that it derives."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy.special import ndtr

from atoll.errors import ConfigError
from atoll.privacy import accountant
from atoll.privacy.accountant import epsilon_of, part_epsilon, smallest_noise, sum_epsilon

GRID = list(product((0.7, 1.0, 2.0, 5.0), (0.002, 0.01, 0.1), (100, 4000), (1e-5, 1e-6)))


@pytest.mark.soak
@pytest.mark.parametrize(("noise", "rate", "times", "delta"), GRID)
def test_within_one_percent_of_opacus(noise: float, rate: float, times: int, delta: float) -> None:
    """Opacus is asked for a fifth of that, so that its own error does not hide ours where epsilon is small."""
    prv = pytest.importorskip("opacus.accountants").PRVAccountant()
    prv.history = [(noise, rate, times)]
    own = part_epsilon({("train", noise, rate): times}, "train", delta)
    other = prv.get_epsilon(delta, eps_error=0.002 * own, delta_error=delta / 1000)
    assert own == pytest.approx(other, rel=0.01)


@pytest.mark.parametrize(("noise", "rate", "times"), [(1.0, 0.01, 1000), (2.0, 0.1, 300)])
def test_some_of_the_grid(noise: float, rate: float, times: int) -> None:
    prv = pytest.importorskip("opacus.accountants").PRVAccountant()
    prv.history = [(noise, rate, times)]
    own = part_epsilon({("train", noise, rate): times}, "train", 1e-5)
    assert own == pytest.approx(prv.get_epsilon(1e-5, eps_error=0.001), rel=0.01)


@pytest.mark.parametrize(
    "events",
    [
        {(1.117, 0.05): 820, (10.0, 1.0): 1},  # rows per class, then trainings
        {(3.0, 0.1): 200, (8.0, 1.0): 10},  # alphas and counts
        {(1.27, 0.05): 600, (2.0, 0.1): 60},  # a search, then other batches
    ],
)
def test_a_sum_of_several_kinds(events: dict[tuple[float, float], int]) -> None:
    """What is spent of one part of a client's rows is seldom of one kind."""
    prv = pytest.importorskip("opacus.accountants").PRVAccountant()
    prv.history = [(noise, rate, times) for (noise, rate), times in events.items()]
    own = sum_epsilon(events, 1e-5)
    with np.errstate(divide="ignore"):  # Opacus takes the logarithm of 0 where every row takes part
        other = prv.get_epsilon(1e-5, eps_error=0.002 * own, delta_error=1e-8)
    assert own == pytest.approx(other, rel=0.01)
    assert own > max(sum_epsilon({place: times}, 1e-5) for place, times in events.items())


def test_coarse_losses_are_a_bound_and_close(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = {("train", 1.0, 0.01): 500}
    own = part_epsilon(spent, "train", 1e-5)
    monkeypatch.setattr(accountant, "DISCRETIZATION", 1e-4)
    finer = part_epsilon(spent, "train", 1e-5)
    assert finer <= own <= 1.001 * finer
    assert own <= sum_epsilon({(1.0, 0.01): 500}, 1e-5, coarse=True) <= 1.01 * finer


def test_a_budget_allows_what_is_within_it_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if every sum were computed, with few computations."""
    computed: list[int] = []
    exact = accountant.sum_epsilon

    def counted(events: accountant.Events, delta: float, coarse: bool = False) -> float:
        computed.append(1)
        return exact(events, delta, coarse)

    budget = accountant.Budget(3.0, 1e-5)
    with monkeypatch.context() as patch:
        patch.setattr(accountant, "sum_epsilon", counted)
        answers = [budget.allows({(2.0, 0.1): 20 * n}) for n in range(1, 12)]
    assert answers == [exact({(2.0, 0.1): 20 * n}, 1e-5) <= 3.0 for n in range(1, 12)]
    assert answers[0] and not answers[-1]
    assert sum(computed[:]) < 40
    computed.clear()
    monkeypatch.setattr(accountant, "sum_epsilon", counted)
    assert budget.allows({(2.0, 0.1): 20}) and not computed  # below what was allowed
    assert not budget.allows({(2.0, 0.1): 20, (0.5, 1.0): 9}) and computed  # of another kind


@pytest.mark.parametrize("times", [1, 9])
def test_one_gaussian_release_is_exact(times: int) -> None:
    """Balle and Wang 2018, equation 6: delta of a Gaussian mechanism; nine releases are one of a third of the noise."""
    noise = 3.0
    epsilon = part_epsilon({("validation", noise, 1.0): times}, "validation", 1e-5)
    shift = math.sqrt(times) / noise
    delta = ndtr(shift / 2 - epsilon / shift) - math.exp(epsilon) * ndtr(-shift / 2 - epsilon / shift)
    assert delta == pytest.approx(1e-5, rel=0.01)


def test_a_row_is_in_one_part_only() -> None:
    train, validation = ("train", 1.0, 0.01), ("validation", 4.0, 1.0)
    both = epsilon_of({train: 100, validation: 3}, 1e-5)
    assert both == max(epsilon_of({train: 100}, 1e-5), epsilon_of({validation: 3}, 1e-5))


def test_releases_of_one_part_add_up() -> None:
    one, two = ("train", 1.0, 0.01), ("train", 4.0, 1.0)
    together = epsilon_of({one: 100, two: 1}, 1e-5)
    assert together > max(epsilon_of({one: 100}, 1e-5), epsilon_of({two: 1}, 1e-5))
    assert epsilon_of({}, 1e-5) == 0


def test_noise_is_the_smallest_within_the_budget() -> None:
    def spend(noise: float) -> float:
        return part_epsilon({("train", noise, 0.05): 200}, "train", 1e-5)

    found = smallest_noise(2.0, spend, "200 steps")
    assert spend(found) <= 2.0 < spend(0.99 * found)


def test_a_budget_that_no_noise_reaches_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"privacy.epsilon = 0.5: 9 counts would spend 7 even with a noise of 10,000"):
        smallest_noise(0.5, lambda noise: 7.0, "9 counts")
