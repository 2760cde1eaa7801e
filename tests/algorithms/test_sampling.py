"""Double sampling: who takes part, and who trains which individual."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.sampling import balanced_paths, choose, groups, participants
from atoll.errors import ConfigError
from refusals import refused

NAMES = [f"client-{number}" for number in range(23)]


@pytest.mark.parametrize(
    ("clients", "fraction", "expected"),
    [(50, 1.0, 50), (50, 0.5, 25), (10, 0.25, 3), (10, 0.24, 2), (10, 0.01, 1), (50, 0.29, 15), (1, 1.0, 1)],
)
def test_m_is_c_times_k_rounded_half_up_and_at_least_one(clients: int, fraction: float, expected: int) -> None:
    assert participants(clients, fraction) == expected


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.01, float("nan")])
def test_a_fraction_is_more_than_nothing_and_at_most_all(fraction: float) -> None:
    with refused(ConfigError, "invalid-setting", fraction):
        participants(10, fraction)


def test_an_empty_federation_is_an_error() -> None:
    with refused(ConfigError, "no-clients"):
        choose([], 1.0, np.random.default_rng(0))


def test_all_clients_participate_in_order() -> None:
    assert choose(NAMES, 1.0, np.random.default_rng(0)) == NAMES
    some = choose(NAMES, 0.5, np.random.default_rng(0))
    assert len(set(some)) == 12
    assert some == [name for name in NAMES if name in some]
    assert some != choose(NAMES, 0.5, np.random.default_rng(1))


def test_every_client_is_equally_likely() -> None:
    rng = np.random.default_rng(0)
    counts = dict.fromkeys(NAMES[:4], 0)
    for _ in range(1000):
        counts[choose(NAMES[:4], 0.25, rng)[0]] += 1
    assert all(200 < count < 300 for count in counts.values())


def test_left_over_clients_join_the_first_groups() -> None:
    # 23 clients, 10 individuals: L = 2, and 3 are left over.
    sizes = [len(group) for group in groups(NAMES, 10, np.random.default_rng(0))]
    assert sizes == [3, 3, 3, 2, 2, 2, 2, 2, 2, 2]


def test_what_is_left_over_of_balanced_paths_falls_on_other_branches() -> None:
    """10 clients and 4 branches: every branch of a block has two clients, and two branches have a third one."""
    drawn = [balanced_paths(10, 3, 4, np.random.default_rng(seed)) for seed in range(20)]
    more = set()
    for paths in drawn:
        for block in zip(*paths, strict=True):
            counts = [block.count(branch) for branch in range(4)]
            assert sorted(counts) == [2, 2, 3, 3]
            more.add(tuple(counts))
    assert len(more) == 6, "which branches have more is drawn"


@given(st.integers(1, 23), st.integers(1, 23), st.integers(0, 99))
def test_every_client_is_in_exactly_one_group(clients: int, count: int, seed: int) -> None:
    names = NAMES[:clients]
    if clients < count:
        with refused(ConfigError, "too-few-clients", f"{clients} clients", count):
            groups(names, count, np.random.default_rng(seed))
        return
    result = groups(names, count, np.random.default_rng(seed))
    assert len(result) == count
    assert sorted(name for group in result for name in group) == sorted(names)
    assert max(map(len, result)) - min(map(len, result)) <= 1
    assert result == groups(names, count, np.random.default_rng(seed))


def test_groups_change_with_the_generator() -> None:
    assert groups(NAMES, 5, np.random.default_rng(0)) != groups(NAMES, 5, np.random.default_rng(1))
    with refused(ConfigError, "invalid-setting", "0"):
        groups(NAMES, 0, np.random.default_rng(0))
