"""Networks are built once; weights go in and out unchanged."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.core.messages import Tensors
from atoll.rng import stream
from atoll.spaces import initial
from atoll.training.networks import load, network, values

ARCH = {"space": "fixed", "model": "cnn", "input": [1, 8, 8], "classes": 10}


def test_one_module_per_architecture_whatever_the_order_of_keys() -> None:
    assert network(ARCH) is network(dict(reversed(ARCH.items())))
    assert network(ARCH) is not network({**ARCH, "classes": 9})


@pytest.mark.filterwarnings("error")  # torch warns of read-only arrays
def test_weights_come_out_as_they_went_in() -> None:
    weights = initial(ARCH, stream(1))
    out = values(weights, load(network(ARCH), weights))
    assert out.whole_digest() == weights.whole_digest()


def test_weights_copied_out_do_not_follow_the_module() -> None:
    weights = initial(ARCH, stream(1))
    out = values(weights, load(network(ARCH), weights))
    load(network(ARCH), initial(ARCH, stream(2)))
    assert np.array_equal(out["0.bias"], weights["0.bias"])


@pytest.mark.parametrize("name", ["0.weights", "0.bias"])
def test_weights_that_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"'{name}'"):
        load(network(ARCH), Tensors({name: np.zeros(3, np.float32)}))
