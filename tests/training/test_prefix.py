"""Prefix-shared evaluation: the same counts as key by key, to the bit, for less work."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from atoll import spaces
from atoll.core.messages import Array, Tensors
from atoll.errors import ArchitectureError
from atoll.spaces.choice import space as choice
from atoll.training.calibration import calibrate, statistics_form
from atoll.training.evaluation import evaluate
from atoll.training.metrics import ConfusionCounts
from atoll.training.networks import network
from atoll.training.shared_prefix import evaluate_keys, key_tree, statistics_of
from refusals import refused

IMAGE: dict[str, Any] = {"space": "choice", "input": [1, 9, 9], "classes": 4, "channels": [4, 4, 8, 8, 16]}
TABLE: dict[str, Any] = {"space": "choice", "input": [6], "classes": 3, "widths": [16, 16, 8, 8]}


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


def _setting(arch: dict[str, Any], rows: int = 41) -> tuple[choice.ChoiceNetwork, Tensors, Array, Array]:
    rng = np.random.default_rng(5)
    module = network(arch)
    assert isinstance(module, choice.ChoiceNetwork)
    x = rng.standard_normal((rows, *arch["input"]), dtype=np.float32)
    return module, spaces.initial(arch, rng), x, rng.integers(arch["classes"], size=rows)


def _same(one: ConfusionCounts, two: ConfusionCounts) -> bool:
    return bool((one.confusion == two.confusion).all()) and one.loss == two.loss


@pytest.mark.parametrize("arch", [IMAGE, TABLE])
def test_every_key_gets_the_counts_of_its_own_network_to_the_bit(arch: dict[str, Any]) -> None:
    master, weights, x, y = _setting(arch)
    keys = choice.random_keys(20, choice.blocks(arch), np.random.default_rng(0))
    # batch 20 leaves one row over, which joins the batch before
    shared, _ = evaluate_keys(master, weights, keys, x, y, batch=20)
    assert len({count.loss for count in shared}) == 20
    for key, count in zip(keys, shared, strict=True):
        sub = choice.sub_model(arch, key)
        alone = evaluate(network(sub), weights.slice(choice.names(sub)), x, y, batch=20)
        assert count.rows == 41
        assert _same(count, alone)


@pytest.mark.parametrize("arch", [IMAGE, TABLE])
def test_batch_statistics_come_with_the_evaluation(arch: dict[str, Any]) -> None:
    """They change no bit of any count, and are those that `calibrate` computes for each network alone."""
    master, weights, x, y = _setting(arch)
    keys = choice.random_keys(8, choice.blocks(arch), np.random.default_rng(3))
    plain, nothing = evaluate_keys(master, weights, keys, x, y, batch=20)
    counts, by_prefix = evaluate_keys(master, weights, keys, x, y, batch=20, statistics=True)
    assert nothing == {} and all(_same(one, two) for one, two in zip(plain, counts, strict=True))
    for key in keys:
        sub = choice.sub_model(arch, key)
        expected = calibrate(network(sub), weights.slice(choice.names(sub)), x, 20)
        statistics = statistics_of(by_prefix, arch, key)
        assert statistics.keys() == expected.keys()
        for name, values in expected.items():
            assert statistics[name].dtype == values.dtype and statistics[name].shape == values.shape
            np.testing.assert_allclose(statistics[name], values, rtol=2e-5, atol=1e-3)
    unknown = (3,) * choice.blocks(arch)
    assert unknown not in keys
    none = statistics_of(by_prefix, arch, unknown)
    assert none.keys() == statistics_form(choice.sub_model(arch, unknown)).keys()
    assert all(not array.any() for array in none.values())


def test_networks_without_batch_norm_have_no_statistics() -> None:
    arch = {**TABLE, "norm": "group"}
    master, weights, x, y = _setting(arch)
    _, by_prefix = evaluate_keys(master, weights, [(1, 2, 3, 0)], x, y, statistics=True)
    assert by_prefix == {} and statistics_of(by_prefix, arch, (1, 2, 3, 0)) == {}


def test_order_and_company_of_a_key_do_not_matter() -> None:
    master, weights, x, y = _setting(TABLE)
    keys = choice.random_keys(9, 4, np.random.default_rng(1))
    forward, _ = evaluate_keys(master, weights, keys, x, y)
    backward, _ = evaluate_keys(master, weights, keys[::-1], x, y)
    single = [evaluate_keys(master, weights, [key], x, y)[0][0] for key in keys]
    for one, two, three in zip(forward, backward[::-1], single, strict=True):
        assert _same(one, two)
        assert _same(one, three)


@pytest.mark.parametrize("arch", [IMAGE, TABLE])
def test_the_work_done_is_the_work_reckoned(arch: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    master, weights, x, y = _setting(arch)
    keys = choice.random_keys(12, choice.blocks(arch), np.random.default_rng(2))
    keys += keys[:2]
    executions, run_block = [], master.run_block

    def counting(number: int, branch: int, values: torch.Tensor) -> torch.Tensor:
        executions.append(number)
        return run_block(number, branch, values)

    monkeypatch.setattr(master, "run_block", counting)
    with FlopCounterMode(display=False) as counter:
        evaluate_keys(master, weights, keys, x, y, batch=100)
    assert counter.get_total_flops() == 2 * len(x) * choice.executed_macs(arch, keys)
    assert len(executions) == choice.executed_blocks(arch, keys) < len(keys) * choice.blocks(arch)


def test_the_tree_of_three_keys() -> None:
    tree = key_tree([(0, 1), (0, 2), (0, 1)], 2)
    assert list(tree.following) == [0]
    assert {branch: node.ends for branch, node in tree.following[0].following.items()} == {1: [0, 2], 2: [1]}


def test_equal_keys_have_equal_counts() -> None:
    master, weights, x, y = _setting(TABLE)
    (one, two), _ = evaluate_keys(master, weights, [[1, 0, 2, 3], (1, 0, 2, 3)], x, y)
    assert _same(one, two)


def test_weights_of_the_used_branches_are_enough() -> None:
    master, weights, x, y = _setting(TABLE)
    key = (1, 0, 2, 3)
    used = weights.slice(choice.names(choice.sub_model(TABLE, key)))
    expected = evaluate_keys(master, weights, [key], x, y)[0][0]
    fresh = spaces.build(TABLE)
    assert isinstance(fresh, choice.ChoiceNetwork)
    assert _same(evaluate_keys(fresh, used, [key], x, y)[0][0], expected)
    assert math.isfinite(expected.loss)


def test_no_keys_and_no_rows() -> None:
    master, weights, x, y = _setting(TABLE)
    assert evaluate_keys(master, weights, [], x, y) == ([], {})
    empty, _ = evaluate_keys(master, weights, [(0, 0, 0, 0)], x[:0], y[:0], classes=3)
    assert empty[0].rows == 0
    with pytest.raises(ValueError):
        evaluate_keys(master, weights, [(0, 0, 0, 0)], x[:0], y[:0])


def test_a_key_that_does_not_fit_is_an_error() -> None:
    master, weights, x, y = _setting(TABLE)
    with refused(ArchitectureError, "key-length-mismatch", "[0,1,2]", "3", "4"):
        evaluate_keys(master, weights, [(0, 1, 2)], x, y)
