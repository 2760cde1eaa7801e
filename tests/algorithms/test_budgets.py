"""Budgets by hand: the schedule, the end, the fewest filters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.netadapt import Schedule, fewest_removed, final_budget, require_reachable, within_budget
from atoll.errors import ConfigError
from refusals import refused

START = {"macs": 1000.0}


def test_the_first_targets() -> None:
    """1000 MACs, 5 % with decay 0.9: 50 off, then 45 off what was found, then 40.5 off."""
    schedule, final = Schedule(0.05, 0.9), {"macs": 500.0}
    assert schedule.targets(1, START, START, final) == {"macs": 950.0}
    assert schedule.targets(2, {"macs": 940.0}, START, final) == {"macs": 895.0}
    assert schedule.targets(3, {"macs": 895.0}, START, final)["macs"] == pytest.approx(854.5)


def test_the_last_target_is_the_final_budget() -> None:
    assert Schedule(0.05).targets(9, {"macs": 520.0}, START, {"macs": 500.0}) == {"macs": 500.0}


def test_a_kind_that_is_within_its_budget_stays_there() -> None:
    start = {"macs": 1000.0, "params": 100.0}
    targets = Schedule(0.1).targets(2, {"macs": 900.0, "params": 40.0}, start, {"macs": 500.0, "params": 60.0})
    assert targets == {"macs": 800.0, "params": 60.0}


def test_steps_of_the_paper_add_up_to_71_percent_and_a_minimal_step_goes_further() -> None:
    def reached(schedule: Schedule) -> float:
        return 1 - sum(schedule.share(iteration) for iteration in range(1, 201))

    assert reached(Schedule(0.05, 0.93)) == pytest.approx(1 - 0.05 / 0.07, abs=1e-4)
    assert reached(Schedule(0.05, 0.93, 0.01)) < 0
    assert Schedule(0.05, 0.93, 0.01).share(1) == 0.05 and Schedule(0.05, 0.93, 0.01).share(40) == 0.01


def test_shares_and_amounts() -> None:
    start = {"macs": 1000.0, "params": 400.0, "memory": 50.0}
    assert final_budget({"macs": 0.5, "params": 300.0, "memory": 1.0}, start) == {
        "macs": 500.0,
        "params": 300.0,
        "memory": 50.0,
    }


def test_all_kinds_must_be_met() -> None:
    assert within_budget({"macs": 5.0, "params": 2.0}, {"macs": 5.0, "params": 2.0})
    assert not within_budget({"macs": 5.0, "params": 3.0}, {"macs": 5.0, "params": 2.0})


def test_fewest_filters() -> None:
    """10 filters of 7 MACs each: 48 or fewer are met with 6 left, in pairs 6, in threes 4, in fours 6."""

    def cost(width: int) -> dict[str, float]:
        return {"macs": 7.0 * width}

    assert [fewest_removed(10, multiple, {"macs": 48.0}, cost) for multiple in (1, 2, 3, 4, 5, 10)] == [
        4,
        4,
        6,
        4,
        5,
        None,
    ]
    assert fewest_removed(10, 1, {"macs": 7.0}, cost) == 9  # one is left
    assert fewest_removed(10, 1, {"macs": 6.9}, cost) is None
    assert fewest_removed(1, 1, {"macs": 100.0}, cost) is None


@given(st.integers(1, 200), st.integers(1, 9), st.integers(0, 2000), st.integers(0, 500))
def test_fewest_is_the_first_multiple_that_meets_all(width: int, multiple: int, macs: int, params: int) -> None:
    def cost(left: int) -> dict[str, float]:
        return {"macs": 10.0 * left + 50, "params": float(left // 2)}

    targets = {"macs": float(macs), "params": float(params)}
    slowly = [n for n in range(multiple, width, multiple) if within_budget(cost(width - n), targets)]
    found = fewest_removed(width, multiple, targets, cost)
    # A layer that meets its targets as it is never occurs: the target is below what the network takes.
    assert found == (slowly[0] if slowly else None)


def test_a_budget_below_the_least_network() -> None:
    require_reachable({"macs": 0.1}, {"macs": 100.0}, {"macs": 100.0})
    with refused(ConfigError, "unreachable-budget", "resources.macs = 0.1", "100", "1,200"):
        require_reachable({"macs": 0.1}, {"macs": 100.0}, {"macs": 1200.0})
