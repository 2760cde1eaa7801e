"""Pruning again and again, in any order: what holds after every step."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.core.messages import Tensors
from atoll.spaces import build, cost, initial
from atoll.spaces.cost import measured_cost
from atoll.spaces.pruned import couplings
from atoll.spaces.pruned.pruning import merged, narrowed, prune, units
from atoll.spaces.pruned.space import describe, from_fixed
from atoll.training.networks import load
from made_modules import CLASSES, SHAPE, Grouped, GroupNormed, Joined, Repeated, batch

STARTS: dict[str, dict[str, Any]] = {
    "convnet": from_fixed(
        {"space": "fixed", "model": "convnet", "input": [3, 8, 8], "classes": 5, "widths": [3, 4, 5, 4, 3, 4]}
    ),
    "mobilenet": from_fixed(
        {"space": "fixed", "model": "mobilenet", "input": [3, 16, 16], "classes": 5, "widths": [3, 4] + [3] * 12}
    ),
    "resnet18": from_fixed(
        {"space": "fixed", "model": "resnet18", "input": [3, 8, 8], "classes": 5, "widths": [3, 4, 5, 3]}
    ),
    **{kind.__name__: describe(kind(), SHAPE, CLASSES) for kind in (Joined, Grouped, GroupNormed, Repeated)},
}


def shapes(weights: Tensors) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in weights.items()}


@settings(max_examples=25)
@given(start=st.sampled_from(sorted(STARTS)), data=st.data())
def test_any_sequence_gives_networks_that_run_and_cost_less(start: str, data: st.DataObject) -> None:
    arch = STARTS[start]
    weights = initial(arch, np.random.default_rng(0))
    names = [unit.name for unit in units(arch)]
    for _ in range(data.draw(st.integers(1, 4))):
        open_units = [unit for unit in units(arch) if unit.width > 1]
        if not open_units:
            break
        unit = data.draw(st.sampled_from(open_units))
        keep = data.draw(st.integers(1, unit.width - 1))
        before = cost(arch)
        small, weights = prune(arch, weights, unit.name, keep)
        assert small == narrowed(arch, unit.name, keep)
        assert cost(small).macs < before.macs and cost(small).params < before.params
        widths = {other.name: other.width for other in units(arch)} | {unit.name: keep}
        arch = small
        assert {other.name: other.width for other in units(arch)} == widths
        assert list(widths) == names
    module = build(json.loads(json.dumps(arch)))
    assert shapes(weights) == {name: tuple(p.shape) for name, p in module.named_parameters()}
    load(module, weights)
    assert module(batch(3, tuple(arch["input"]))).shape == (3, CLASSES)
    assert cost(arch) == measured_cost(module, tuple(arch["input"]))


@settings(max_examples=10)
@given(start=st.sampled_from(sorted(STARTS)), data=st.data())
def test_earlier_calls_do_not_change_the_result(start: str, data: st.DataObject) -> None:
    """Couplings are cached between networks; a new process must find the same ones."""
    arch = STARTS[start]
    for unit in units(arch):
        arch = narrowed(arch, unit.name, data.draw(st.integers(1, unit.width)))
    found = units(arch)
    unit = data.draw(st.sampled_from(found))
    keep = data.draw(st.integers(1, unit.width))
    weights = initial(arch, np.random.default_rng(1))
    remembered = prune(arch, weights, unit.name, keep)
    kept = dict(couplings._known_couplings)
    couplings._known_couplings.clear()
    try:
        assert units(arch) == found
        fresh = prune(arch, weights, unit.name, keep)
    finally:
        couplings._known_couplings.clear()
        couplings._known_couplings.update(kept)
    assert fresh[0] == remembered[0]
    assert fresh[1].whole_digest() == remembered[1].whole_digest()


@pytest.mark.parametrize("start", sorted(STARTS))
def test_costs_fall_with_every_filter_of_every_unit(start: str) -> None:
    """So the fewest filters that meet a budget can be found by halving."""
    arch = STARTS[start]
    everything = merged(units(arch), [[unit.name for unit in units(arch)]])
    for unit in [*units(arch), *everything]:
        costs = [cost(narrowed(arch, unit.name, keep)) for keep in range(1, unit.width + 1)]
        assert costs == sorted(costs, key=lambda one: (one.macs, one.params))
        assert len({one.macs for one in costs}) == len(costs)
        assert costs[-1] == cost(arch)


def test_order_of_pruning_different_units_does_not_matter_for_descriptions() -> None:
    arch = STARTS["Joined"]
    one = narrowed(narrowed(arch, "left", 2), "right", 3)
    other = narrowed(narrowed(arch, "right", 3), "left", 2)
    assert one == other
    assert one["layers"]["wide"]["outputs"] == one["layers"]["last"]["inputs"] == 5
