"""The table of private runs by hand: means over seeds, one winner per budget, and what is no basis for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from scripts import script

table = script("experiments/privacy/table.py")
membership = script("experiments/privacy/membership.py")


def outcome(method: str, epsilon: float, seed: int, error: float, spent: float | None = None) -> object:
    return table.Outcome(method, epsilon, seed, error, spent)


def test_a_row_per_method_and_budget() -> None:
    found = table.rows(
        [
            outcome("fedavg", 8.0, 2, 0.12, 7.9),
            outcome("fedavg", 8.0, 1, 0.10, 7.95),
            outcome("moefl", 8.0, 1, 0.2, 7.5),
            outcome("moefl", 8.0, 2, 0.3, 7.4),
            outcome("fedavg", table.NONE, 1, 0.03),
        ]
    )
    assert table.table(found)[2:] == [
        "| none | fedavg | 1 | 3.00 % | - | - |",
        "| 8 | fedavg | 2 | 11.00 % | 1.41 % | 7.95 |",
        "| 8 | moefl | 2 | 25.00 % | 7.07 % | 7.50 |",
    ]
    assert table.winners(found) == [
        "epsilon none: only fedavg was run",
        "epsilon 8: fedavg wins, moefl is 14.00 points behind",
    ]


def test_two_runs_of_one_seed_are_refused() -> None:
    """They have other settings: a mean over them is none over seeds."""
    with pytest.raises(SystemExit, match="two runs of one seed"):
        table.rows([outcome("a", 8.0, 1, 0.1), outcome("a", 8.0, 1, 0.2)])


def test_a_difference_within_the_deviation_is_named() -> None:
    close = [outcome("a", 1.0, 1, 0.10), outcome("a", 1.0, 2, 0.20), outcome("b", 1.0, 1, 0.16)]
    assert "no basis" in table.winners(table.rows(close))[0]
    assert "less than the deviation" in table.winners(table.rows([*close, outcome("b", 1.0, 2, 0.18)]))[0]


def test_the_advantage_of_the_best_threshold() -> None:
    """Members 1, 2, 5 and others 3, 4, 6: below 2 are two of three members and no other row."""
    assert membership.advantage(np.array([1.0, 5.0, 2.0]), np.array([4.0, 3.0, 6.0])) == pytest.approx(2 / 3)


def test_the_bound_of_every_advantage() -> None:
    """Of two equally likely worlds an observer is right in e / (1 + e) of cases at epsilon 1: 0.7311. Delta adds its
    share; without an epsilon it is all there is."""
    assert membership.bound(1.0, 0.0) == pytest.approx(2 * 0.731059 - 1, abs=1e-6)
    assert membership.bound(0.0, 0.25) == pytest.approx(0.25)
    assert membership.bound(1.0, 1e-3) - membership.bound(1.0, 0.0) == pytest.approx(2e-3 / 3.71828, rel=1e-4)


@pytest.mark.parametrize("main", [table.main, membership.main], ids=["table", "membership"])
def test_a_run_that_is_missing_is_named_in_one_line(tmp_path: Path, main: Callable[[Sequence[str]], None]) -> None:
    with pytest.raises(SystemExit, match="none: not a run directory") as problem:
        main([str(tmp_path / "runs/none")])
    assert "\n" not in str(problem.value)
