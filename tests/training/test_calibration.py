"""Fixed batch-norm statistics, pooled over clients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.spaces import initial
from atoll.spaces.norm import BatchNorm
from atoll.training.calibration import calibrate, fixed_module, pooled
from atoll.training.networks import load, network

NETWORKS: list[dict[str, Any]] = [
    {"space": "fixed", "model": "resnet18", "input": [3, 16, 16], "classes": 4, "widths": [4, 4, 6, 8]},
    {"space": "fixed", "model": "mobilenet", "input": [3, 16, 16], "classes": 4, "width": 0.125},
    {"space": "fixed", "model": "convnet", "input": [3, 16, 16], "classes": 4, "width": 0.125},
    {"space": "fixed", "model": "mlp", "input": [3, 16, 16], "classes": 4, "hidden": [8]},
]
CLOSE = {"rtol": 1e-3, "atol": 1e-3}  # 27 norms in a row amplify what the layers round
by_model = pytest.mark.parametrize("arch", NETWORKS, ids=lambda arch: arch["model"])


def test_sums_by_hand() -> None:
    # two rows of one channel, 2x1 pixels: 1, 2, 3, 6
    module = nn.Sequential(BatchNorm(1))
    x = np.array([1, 2, 3, 6], np.float32).reshape(2, 1, 2, 1)
    sums = calibrate(module, Tensors({}), x)
    assert {name: array.tolist() for name, array in sums.items()} == {
        "0.count": [4.0],
        "0.sum": [12.0],
        "0.squares": [50.0],
    }
    assert {array.dtype for array in sums.values()} == {np.dtype(np.float64)}


@by_model
def test_calibrated_on_one_batch_equals_batch_statistics_on_it(arch: dict[str, Any]) -> None:
    x, weights = stream(1).random((30, 3, 16, 16), dtype=np.float32), initial(arch, stream(2))
    module = network(arch)
    fixed = fixed_module(arch, weights, calibrate(module, weights, x, batch=30))
    load(module, weights)
    with torch.no_grad():
        expected = module(torch.tensor(x))
        torch.testing.assert_close(fixed(torch.tensor(x)), expected, **CLOSE)
        assert expected.std(0).min() > 20 * CLOSE["atol"]  # the rows do differ


@by_model
def test_a_fixed_module_works_on_a_single_row_and_row_by_row(arch: dict[str, Any]) -> None:
    x, weights = stream(1).random((30, 3, 16, 16), dtype=np.float32), initial(arch, stream(2))
    fixed = fixed_module(arch, weights, calibrate(network(arch), weights, x, batch=10))
    assert not fixed.training
    with torch.no_grad():
        alone = torch.cat([fixed(torch.tensor(row[None])) for row in x[:3]])
        torch.testing.assert_close(alone, fixed(torch.tensor(x))[:3], **CLOSE)


def test_clients_add_up_to_what_one_client_with_all_rows_would_say() -> None:
    arch = NETWORKS[0]
    x, weights = stream(1).random((40, 3, 16, 16), dtype=np.float32), initial(arch, stream(2))
    module = network(arch)
    together = calibrate(module, weights, x, batch=10)
    added = pooled([calibrate(module, weights, x[:10], 10), calibrate(module, weights, x[10:], 10)])
    assert list(added) == list(together)
    for name, array in together.items():
        np.testing.assert_allclose(added[name], array, rtol=1e-12)


def test_missing_statistics_are_refused() -> None:
    arch = NETWORKS[0]
    with pytest.raises(ValueError, match=r"'0\.1'"):
        fixed_module(arch, initial(arch, stream(2)), Tensors({}))


def test_hooks_are_gone_afterwards() -> None:
    arch = NETWORKS[0]
    module, weights = network(arch), initial(arch, stream(2))
    calibrate(module, weights, stream(1).random((4, 3, 16, 16), dtype=np.float32))
    assert not any(layer._forward_pre_hooks for layer in module.modules())


@by_model
def test_a_fixed_module_can_be_exported(arch: dict[str, Any]) -> None:
    x, weights = stream(1).random((8, 3, 16, 16), dtype=np.float32), initial(arch, stream(2))
    fixed = fixed_module(arch, weights, calibrate(network(arch), weights, x))
    row = torch.tensor(x[:1])
    with torch.no_grad():
        exported = torch.export.export(fixed, (row,)).module()
        torch.testing.assert_close(exported(row), fixed(row))
