"""Names and costs from the table, against hand arithmetic and against the modules themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll import spaces
from atoll.spaces.choice import space as choice
from atoll.spaces.cost import Cost, measured_cost

IMAGE: dict[str, Any] = {"space": "choice", "input": [2, 8, 8], "classes": 3, "channels": [4, 8], "expansion": 2}
ODD: dict[str, Any] = {"space": "choice", "input": [1, 11, 7], "classes": 10, "channels": [4, 4, 8, 8, 12], "stem": 4}
TABLE: dict[str, Any] = {"space": "choice", "input": [5], "classes": 3, "widths": [8, 8, 4, 16], "stem": 6}
PAPER: dict[str, Any] = {
    "space": "choice",
    "input": [3, 32, 32],
    "classes": 10,
    "channels": list(choice.PAPER_CHANNELS),
}


def test_costs_by_hand() -> None:
    # stem 2->4, 3x3, 64 pixels: 72 weights, 4608 MACs; head 8->3: 27 parameters, 24 MACs.
    stem, head = Cost(4608, 72, 288), Cost(24, 27, 108)
    # identity, then identity reduction: two 1x1 convolutions 4->4 on 16 pixels: 32 weights, 512 MACs.
    assert choice.cost({**IMAGE, "key": [0, 0]}) == Cost(4608 + 512 + 24, 72 + 32 + 27, 4 * (72 + 32 + 27))
    # residual 4->4 twice 3x3 on 64 pixels: 288 weights, 18432 MACs; separable reduction on 16 pixels:
    # 4*9 + 4*8 + 8*9 + 8*8 = 204 weights, 3264 MACs.
    assert choice.cost({**IMAGE, "key": [1, 3]}).macs == stem.macs + 18432 + 3264 + head.macs
    assert choice.cost({**IMAGE, "key": [1, 3]}).params == stem.params + 288 + 204 + head.params
    # inverted reduction: expand 4->8 on 64 pixels, depthwise 8*9 and project 8->8 on 16.
    assert choice.cost({**IMAGE, "key": [0, 2]}).macs == stem.macs + 32 * 64 + (72 + 64) * 16 + head.macs


def test_the_papers_master() -> None:
    """An all-residual key is ResNet-like: 12 blocks where ResNet18 has 8, 0.851 GMAC where it has 0.555."""
    residual = choice.cost({**PAPER, "key": [1] * 12})
    stages = 9 * (6 * 64**2) * 32**2
    for channels, size in ((128, 16), (256, 8), (512, 4)):
        stages += 9 * (channels // 2 * channels + 5 * channels**2) * size**2
    assert residual.macs == 27 * 64 * 32**2 + stages + 5120
    assert choice.cost({**PAPER, "key": [0] * 12}).params == 27 * 64 + 64 * 128 + 128 * 256 + 256 * 512 + 5130


@pytest.mark.parametrize("arch", [IMAGE, ODD, TABLE])
def test_the_table_agrees_with_modules_on_random_keys(arch: dict[str, Any]) -> None:
    for key in choice.random_keys(12, choice.blocks(arch), np.random.default_rng(1)):
        sub = choice.sub_model(arch, key)
        module = spaces.skeleton(sub)
        assert {name: tuple(value.shape) for name, value in module.named_parameters()} == choice.shapes(sub)
        assert [name for name, _ in module.named_parameters()] == choice.names(sub)
        assert measured_cost(module, tuple(arch["input"])) == spaces.cost(sub)


@pytest.mark.parametrize("arch", [IMAGE, ODD, TABLE])
def test_a_master_holds_every_sub_model(arch: dict[str, Any]) -> None:
    everything = choice.shapes(arch)
    assert list(everything) == [name for name, _ in spaces.skeleton(arch).named_parameters()]
    assert choice.cost(arch).params == sum(int(np.prod(shape)) for shape in everything.values())
    for key in choice.random_keys(8, choice.blocks(arch), np.random.default_rng(2)):
        part = choice.shapes(choice.sub_model(arch, key))
        assert part.items() <= everything.items()


def test_executed_work_by_hand() -> None:
    first, second, both = [0, 0], [0, 2], [1, 3]
    costs = {tuple(key): choice.cost({**IMAGE, "key": key}).macs for key in (first, second, both)}
    stem = 4608
    # The first two share stem and block 1, which is the identity; all three share the stem.
    assert choice.executed_macs(IMAGE, [first, second]) == costs[0, 0] + costs[0, 2] - stem
    assert choice.executed_macs(IMAGE, [first, second, both]) == sum(costs.values()) - 2 * stem
    assert choice.executed_blocks(IMAGE, [first, second, both]) == 2 + 3
    # A shared residual block is paid once.
    assert choice.executed_macs(IMAGE, [[1, 0], [1, 3]]) == (
        choice.cost({**IMAGE, "key": [1, 0]}).macs + costs[1, 3] - stem - 18432
    )


def test_an_equal_key_costs_nothing_more_and_no_key_nothing() -> None:
    assert choice.executed_macs(IMAGE, [[1, 1], (1, 1)]) == choice.cost({**IMAGE, "key": [1, 1]}).macs
    assert choice.executed_macs(IMAGE, []) == 0


KEYS = st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=8)


@settings(deadline=None)
@given(KEYS)
def test_sharing_never_costs_more_than_key_by_key(keys: list[list[int]]) -> None:
    costs = [choice.cost({**ODD, "key": key}).macs for key in keys]
    assert max(costs) <= choice.executed_macs(ODD, keys) <= sum(costs)
    assert choice.executed_macs(ODD, keys) == choice.executed_macs(ODD, keys[::-1])
