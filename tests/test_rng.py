"""Random streams: the same numbers for ever, told apart by their names."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.rng import stream

names = st.lists(st.one_of(st.text(max_size=5), st.integers(-3, 3)), max_size=4)


def test_streams_never_change() -> None:
    """Numbers written down when the first version was made: a change here changes every run ever recorded."""
    assert stream(1).integers(0, 1000, 5).tolist() == [650, 982, 699, 908, 428]
    assert stream(1, "client", 3, "client-0", 0).integers(0, 1000, 5).tolist() == [932, 716, 776, 858, 570]
    assert stream(0, "a").random(3).tolist() == [0.8318745883969118, 0.8169977740811998, 0.06726563272662633]


def test_equal_names_give_equal_streams() -> None:
    assert np.array_equal(stream(7, "x", 1).random(100), stream(7, "x", 1).random(100))


@given(names, names)
def test_different_names_give_different_streams(one: list[str | int], two: list[str | int]) -> None:
    same = np.array_equal(stream(5, *one).random(4), stream(5, *two).random(4))
    assert same == ([(type(part), part) for part in one] == [(type(part), part) for part in two])


@pytest.mark.parametrize(
    ("one", "two"),
    [((1,), ("1",)), (("ab", "c"), ("a", "bc")), ((12, 3), (1, 23)), (("i1",), (1,)), ((), ("",))],
)
def test_names_that_look_alike_are_told_apart(one: tuple[str | int, ...], two: tuple[str | int, ...]) -> None:
    assert not np.array_equal(stream(1, *one).random(4), stream(1, *two).random(4))


def test_the_seed_is_part_of_the_name_and_may_be_large() -> None:
    assert not np.array_equal(stream(1, "a").random(4), stream(2, "a").random(4))
    assert stream(2**63 - 1, "a").random() != stream(2**63 - 2, "a").random()


def test_neighbouring_streams_are_not_correlated() -> None:
    rows = np.stack([stream(1, "client", number).random(2000) for number in range(20)])
    off_diagonal = np.corrcoef(rows)[~np.eye(20, dtype=bool)]
    assert np.abs(off_diagonal).max() < 0.1  # 190 pairs of 2,000 numbers: 4.5 standard deviations


@pytest.mark.parametrize("part", [True, 1.0, None, b"a", np.int64(1)])
def test_a_name_is_made_of_words_and_whole_numbers(part: object) -> None:
    with pytest.raises(TypeError):
        stream(1, part)  # type: ignore[arg-type]
