"""Averages by hand: two clients, exact numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.aggregation import Mean, PartialMean, with_momentum
from atoll.core.messages import Tensors
from atoll.errors import ConfigError, TooFewReplies
from refusals import refused


def _tensors(**values: float | list[float]) -> Tensors:
    return Tensors({name: np.array(value, dtype=np.float32) for name, value in values.items()})


def _plain(tensors: Tensors) -> dict[str, object]:
    return {name: array.tolist() for name, array in tensors.items()}


def test_weighted_and_plain_mean() -> None:
    one, two = _tensors(a=[1, 2], b=0), _tensors(a=[5, 2], b=4)
    weighted, plain = Mean(), Mean()
    for mean, weights in ((weighted, (3, 1)), (plain, (1, 1))):
        mean.add(one, weights[0])
        mean.add(two, weights[1])
    assert _plain(weighted.result()) == {"a": [2, 2], "b": 1}
    assert _plain(plain.result()) == {"a": [3, 2], "b": 2}
    assert weighted.weight == 4
    assert weighted.result()["a"].dtype == np.float32


def test_server_momentum_by_hand() -> None:
    """Means of 3 and then 4 from 2: v is 1, and then 0.5 * 1 + (4 - 3) = 1.5."""
    start, nothing = _tensors(a=[2.0]), Tensors({})
    first, velocity = with_momentum(start, _tensors(a=[3.0]), nothing, 0.5)
    assert _plain(first) == {"a": [3]} and _plain(velocity) == {"a": [1]}
    second, velocity = with_momentum(first, _tensors(a=[4.0]), velocity, 0.5)
    assert _plain(second) == {"a": [4.5]} and _plain(velocity) == {"a": [1.5]}
    mean = _tensors(a=[3.0])
    assert with_momentum(start, mean, nothing, 0.0) == (mean, nothing)


# Fig. 6: two choice blocks; client 1 trains [0,0,0,1] = B0, B1 and client 2 [1,0,1,1] = B2, B3; both train the stem.
MASTER = _tensors(stem=10, c1_b1=20, c1_b2=30, c1_b3=40, c2_b1=50, c2_b3=60)
CLIENT_1 = _tensors(stem=14, c2_b1=54)  # B0 of block 1 has no parameters
CLIENT_2 = _tensors(stem=18, c1_b2=38, c2_b3=68)


def test_algorithm_3_on_figure_6() -> None:
    """n_1 = 100 and n_2 = 300, so n_1/n = 1/4 and n_2/n = 3/4."""
    mean = PartialMean(MASTER, "all")
    mean.add(CLIENT_1, 100)
    mean.add(CLIENT_2, 300)
    assert _plain(mean.result()) == {
        "stem": 0.25 * 14 + 0.75 * 18,  # not in a choice block: line 8
        "c1_b1": 20,  # nobody's: stays
        "c1_b2": 0.25 * 30 + 0.75 * 38,  # client 2 trained it, client 1 is filled with the old one: lines 12 and 14
        "c1_b3": 40,
        "c2_b1": 0.25 * 54 + 0.75 * 50,
        "c2_b3": 0.25 * 60 + 0.75 * 68,
    }


def test_the_second_denominator_counts_only_clients_that_trained_a_parameter() -> None:
    mean = PartialMean(MASTER, "trained")
    mean.add(CLIENT_1, 100)
    mean.add(CLIENT_2, 300)
    assert _plain(mean.result()) == {"stem": 17, "c1_b1": 20, "c1_b2": 38, "c1_b3": 40, "c2_b1": 54, "c2_b3": 68}


def test_a_client_without_data_changes_nothing() -> None:
    for average in ("all", "trained"):
        mean = PartialMean(MASTER, average)
        mean.add(CLIENT_1, 0)
        mean.add(CLIENT_2, 300)
        assert mean.result()["c2_b1"] == 50
        assert mean.result()["stem"] == 18


def test_an_untrained_tensor_retains_its_content_name() -> None:
    master = MASTER
    digest = master.digest("c1_b1")
    mean = PartialMean(master)
    mean.add(CLIENT_1, 1)
    assert np.shares_memory(mean.result()["c1_b1"], master["c1_b1"])
    assert mean.result().digest("c1_b1") == digest
    assert list(mean.result()) == list(master)


# A sum turns -0 into 0, which nothing in a network can tell apart.
FLOATS = st.lists(st.floats(-1e3, 1e3, width=32).map(lambda value: value + 0.0), min_size=1, max_size=5)


@given(FLOATS, st.lists(st.integers(1, 5000), min_size=1, max_size=20))
def test_equal_models_come_back_to_the_bit(values: list[float], weights: list[int]) -> None:
    model = _tensors(a=values)
    whole, part = Mean(), PartialMean(model)
    for weight in weights:
        whole.add(model, weight)
        part.add(model, weight)
    assert whole.result().digest("a") == model.digest("a")
    assert part.result().digest("a") == model.digest("a")


@given(st.lists(st.tuples(st.booleans(), st.floats(-10, 10, width=32), st.integers(1, 100)), min_size=1, max_size=8))
def test_folding_equals_filling_up_and_averaging(replies: list[tuple[bool, float, int]]) -> None:
    """Algorithm 3 literally: every reply is filled with the old master, then all are averaged."""
    master = _tensors(a=3.25, b=-1.5)
    folded, filled = PartialMean(master), Mean()
    for holds_b, value, weight in replies:
        part = _tensors(a=value, b=value) if holds_b else _tensors(a=value)
        folded.add(part, weight)
        filled.add(master.replaced(part), weight)
    for name in master:
        assert folded.result()[name] == pytest.approx(filled.result()[name], rel=1e-6, abs=1e-6)


def test_an_empty_average_is_an_error() -> None:
    with refused(TooFewReplies, "too-few-replies"):
        Mean().result()
    mean = PartialMean(MASTER)
    mean.add(CLIENT_1, 0)
    with refused(TooFewReplies, "too-few-replies"):
        mean.result()


def test_what_does_not_fit_is_refused() -> None:
    mean = Mean()
    mean.add(_tensors(a=1))
    with pytest.raises(ValueError, match="'b'"):
        mean.add(_tensors(a=1, b=2))
    with pytest.raises(ValueError, match="'a'"):
        mean.add(_tensors(a=[1, 2]))
    for weight in (-1, float("nan")):
        with pytest.raises(ValueError, match=str(weight)):
            mean.add(_tensors(a=1), weight)
    with pytest.raises(ValueError, match="'other'"):
        PartialMean(MASTER).add(_tensors(other=1))
    with pytest.raises(ValueError, match="'stem'"):
        PartialMean(MASTER).add(_tensors(stem=[1, 2]))
    with refused(ConfigError, "unknown-average", "'train'", "'trained'"):
        PartialMean(MASTER, "train")  # type: ignore[arg-type]
