"""The drop rule by hand: Table 3 of the paper, the degradation ratio, ties."""

from __future__ import annotations

import pytest

from atoll.algorithms.netadapt import degradation, ranked, saved, survivors


def uploads(candidates: int, rounds: int, share: float) -> int:
    return sum(survivors(candidates, done, share) for done in range(1, rounds + 1))


def test_table_3() -> None:
    """ConvNet, seven candidates, ten rounds: uplink shares of 12.8/59.7 and 8.5/59.7 of no drop's 70 uploads."""
    assert [survivors(7, done, 1 / 3) for done in range(1, 6)] == [5, 2, 1, 1, 1]
    assert uploads(7, 10, 0.0) == 70
    assert uploads(7, 10, 1 / 3) == 15 and pytest.approx(12.8 / 59.7, abs=0.001) == 15 / 70
    assert uploads(7, 10, 1.0) == 10 and pytest.approx(8.5 / 59.7, abs=0.001) == 10 / 70
    assert uploads(7, 10, 0.5) == 13  # 3.5 candidates are four; the paper's 10.7 would be 12.5 uploads


def test_one_always_stays_and_halves_go_up() -> None:
    assert survivors(1, 1, 1.0) == survivors(14, 9, 0.33) == 1
    assert survivors(14, 1, 0.33) == 9  # 9.38
    assert survivors(3, 1, 0.5) == 2  # 1.5
    assert survivors(5, 1, 0.9) == 1 and survivors(15, 1, 0.9) == 2  # 0.5 and 1.5, both a little less in floats


def test_degradation() -> None:
    """From 0.90 to 0.87 for a tenth saved: 0.3 per unit. To 0.86 for a fifth saved: 0.2, which is better."""
    assert degradation(0.90, 0.87, 0.1) == pytest.approx(0.3)
    assert degradation(0.90, 0.86, 0.2) == pytest.approx(0.2)
    assert degradation(0.90, 0.95, 0.1) < 0  # a candidate may also be better than the network before it
    with pytest.raises(ValueError, match=r"0\.0"):
        degradation(0.9, 0.8, 0.0)


def test_several_resources_are_saved_in_shares_of_the_start() -> None:
    start = {"macs": 1000.0, "params": 200.0}
    assert saved({"macs": 800.0, "params": 100.0}, {"macs": 700.0, "params": 90.0}, start) == pytest.approx(0.075)


def test_ties_go_to_the_larger_saving_and_then_to_the_first() -> None:
    scores = {"a": (0.2, 0.05), "b": (0.1, 0.05), "c": (0.1, 0.07), "d": (0.1, 0.07), "e": (-0.3, 0.01)}
    assert ranked(scores) == ["e", "c", "d", "b", "a"]
