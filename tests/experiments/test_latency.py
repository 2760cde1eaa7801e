"""Latency of a round by hand: who gets which, over lines whose rates change."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.algorithms.sampling import Rule
from atoll.rng import stream
from atoll.simulation.links import Link
from atoll.simulation.traces import Trace
from scripts import script

round_latency = script("experiments/fedrl/latency.py").round_latency

SLOW, FAST = Trace.constant(10.0), Trace.constant(100.0)


@pytest.mark.parametrize(("rule", "maximal", "mean"), [("adaptive", 10, 6.5), ("same", 20, 11)])
def test_constant_lines(rule: Rule, maximal: float, mean: float) -> None:
    """300 B over 100 B/s and 100 B over 10 B/s; or 200 B, the mean size, over both."""
    found = round_latency([300.0, 100.0], [Link(SLOW), Link(FAST)], 5.0, rule, stream(1, "x"))
    assert found.maximal == pytest.approx(maximal) and found.mean == pytest.approx(mean)


def test_the_server_knows_the_rates_of_the_moment_only() -> None:
    """At 0 the first line is faster and gets the large one; from 1 on it stands still for 9 s."""
    fickle = Trace(np.array([1.0, 9.0]), np.array([100.0, 0.0]), np.zeros(2))
    links = [Link(fickle), Link(Trace.constant(50.0))]
    found = round_latency([200.0, 100.0], links, 0.0, "adaptive", stream(1, "x"))
    assert found.maximal == pytest.approx(11.0) and found.mean == pytest.approx((11 + 2) / 2)
    later = round_latency([200.0, 100.0], links, 2.0, "adaptive", stream(1, "x"))
    assert later.maximal == pytest.approx(9.0) and later.mean == pytest.approx((9 + 4) / 2)


def test_adaptive_is_the_quickest_on_average() -> None:
    rules: tuple[Rule, ...] = ("adaptive", "random", "same")
    links = [Link(Trace.constant(10.0 * 2**number)) for number in range(6)]
    means = dict.fromkeys(rules, 0.0)
    for number in range(50):
        sizes = stream(1, "sizes", number).uniform(50, 150, 6).tolist()
        for rule in rules:
            means[rule] += round_latency(sizes, links, 0.0, rule, stream(1, rule, number)).maximal / 50
    assert means["adaptive"] < min(means["random"], means["same"])
