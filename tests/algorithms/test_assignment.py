"""Larger sub-models to faster links."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.sampling import RULES, assign, transmitted
from atoll.errors import ConfigError
from atoll.rng import stream
from refusals import refused

RNG = stream(1, "test")


def test_by_hand() -> None:
    """Links of 5, 20 and 10: the second gets the largest, the third the middle one, the first the smallest."""
    order = assign([300, 100, 200], [5, 20, 10], "adaptive", RNG)
    assert order == [1, 0, 2] and transmitted([300, 100, 200], order, "adaptive") == [100, 300, 200]
    assert assign([300, 100, 200], [5, 20, 10], "same", RNG) == [0, 1, 2]
    assert transmitted([300, 100, 200], [0, 1, 2], "same") == [200] * 3


def test_ties_and_unknown_rates() -> None:
    drawn = {tuple(assign([7, 8, 9], [1, 5, 1], "adaptive", stream(number, "ties"))) for number in range(20)}
    assert drawn == {(0, 2, 1), (1, 2, 0)}  # no client is always given the larger of the two
    assert assign([1, 3, 2], [None, None, None], "adaptive", RNG) == [0, 1, 2]
    assert assign([1, 3, 2], [None, 0.0, 9.0], "adaptive", RNG) == [0, 2, 1]  # unknown is slower than standing still


def test_random_is_drawn_from_the_stream_and_reaches_every_order() -> None:
    drawn = {tuple(assign([1, 2, 3], [1, 2, 3], "random", stream(number, "order"))) for number in range(100)}
    assert len(drawn) == 6
    assert assign([1, 2, 3], [1, 2, 3], "random", stream(4, "x")) == assign(
        [9, 9, 9], [0, 0, 0], "random", stream(4, "x")
    )


@given(st.lists(st.tuples(st.integers(1, 1000), st.floats(0.1, 1e6)), min_size=1, max_size=12), st.sampled_from(RULES))
def test_everybody_gets_one_and_no_order_is_quicker(pairs: list[tuple[int, float]], rule: str) -> None:
    """Over links of constant rate, sorting minimises the largest latency: any other order is compared."""
    sizes, rates = [size for size, _ in pairs], [rate for _, rate in pairs]
    order = assign(sizes, rates, rule, stream(1, "order"))  # type: ignore[arg-type]
    assert sorted(order) == list(range(len(pairs)))
    adaptive = assign(sizes, rates, "adaptive", RNG)
    ours = max(sizes[number] / rate for number, rate in zip(adaptive, rates, strict=True))
    theirs = max(sizes[number] / rate for number, rate in zip(order, rates, strict=True))
    assert ours <= theirs * (1 + 1e-12)


def test_what_cannot_be() -> None:
    with refused(ConfigError, "client-count-mismatch", "2", "1"):
        assign([1, 2], [1], "adaptive", RNG)
    with refused(ConfigError, "unknown-assignment", "adaptiv", "adaptive"):
        assign([1], [1], "adaptiv", RNG)  # type: ignore[arg-type]


def test_numpy_numbers_will_do() -> None:
    assert assign(np.array([3, 1]), np.array([1.0, 2.0]), "adaptive", RNG) == [1, 0]  # type: ignore[arg-type]
