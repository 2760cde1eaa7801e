"""Same seed, same bits: wherever arrays lie in memory, and in a fresh process."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

from atoll.core.messages import Array, Tensors
from atoll.rng import stream
from atoll.spaces import initial
from atoll.training.determinism import ENVIRONMENT, prepare_environment, record, single_thread
from atoll.training.evaluation import evaluate
from atoll.training.networks import network
from atoll.training.sgd import TrainSettings, train

NETWORKS: list[dict[str, Any]] = [
    {"space": "fixed", "model": "mlp", "input": [3, 17, 16], "classes": 7, "hidden": [33, 21]},
    {"space": "fixed", "model": "cnn", "input": [3, 17, 16], "classes": 7, "filters": [5, 7], "hidden": [11]},
    {"space": "fixed", "model": "mobilenet", "input": [3, 17, 16], "classes": 7, "width": 0.25},
]


def odd(array: Array, offset: int) -> Array:
    """The same values, `offset` bytes beside any alignment."""
    room = np.zeros(array.nbytes + 128, np.uint8)
    start = -room.ctypes.data % 64 + offset
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    assert copy.ctypes.data % 64 == offset % 64
    return copy


def trained(arch: dict[str, Any], offset: int) -> str:
    x, y = stream(1).random((43, *arch["input"]), dtype=np.float32), stream(2).integers(0, 7, 43)
    weights = Tensors({name: odd(array, offset) for name, array in initial(arch, stream(3)).items()})
    settings = TrainSettings(2, 9, 0.05, momentum=0.5)
    outcome = train(network(arch), weights, odd(x, offset), odd(y, 2 * offset), settings, stream(4))
    loss = evaluate(network(arch), outcome.weights, odd(x, offset), odd(y, 2 * offset), batch=10).loss
    return f"{outcome.weights.whole_digest()} {loss.hex()}"


@pytest.mark.parametrize("arch", NETWORKS, ids=lambda arch: arch["model"])
def test_alignment_of_the_sources_does_not_change_bits(arch: dict[str, Any]) -> None:
    single_thread()
    assert len({trained(arch, offset) for offset in (0, 4, 12, 20, 36)}) == 1


def test_a_fresh_process_gives_the_same_bits() -> None:
    single_thread()
    code = (
        "import importlib.util, sys; spec = importlib.util.spec_from_file_location('here', sys.argv[1]);"
        "here = importlib.util.module_from_spec(spec); spec.loader.exec_module(here);"
        "here.single_thread(); print([here.trained(arch, 8) for arch in here.NETWORKS])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    answer = subprocess.run(
        [sys.executable, "-c", code, __file__], env=environment, capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == str([trained(arch, 0) for arch in NETWORKS])


def test_global_random_state_is_untouched() -> None:
    before = torch.random.get_rng_state()
    trained(NETWORKS[2], 0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_what_a_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "1")
    prepare_environment()
    assert os.environ["MKL_CBWR"] == "AVX2"
    assert os.environ.pop("OMP_NUM_THREADS") == "1"


def test_the_record_says_what_bits_depend_on() -> None:
    single_thread()
    assert record()["threads"] == 1
    assert set(ENVIRONMENT) | {"torch", "cpu_capability"} <= set(record())
