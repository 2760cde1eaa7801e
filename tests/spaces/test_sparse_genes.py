"""Chromosomes: Table II's lengths and ranges, +1 when decoded, repair, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.errors import ArchitectureError
from atoll.rng import stream
from atoll.spaces.sparse.genes import HIGH, LOW, Chromosome, decode, encode, length, random_chromosome, repair, smallest
from refusals import refused

MLP: dict[str, Any] = {"hidden": [5, 4], "epsilon": 20, "lr": 0.1, "xi": 0.3}
CNN: dict[str, Any] = {**MLP, "filters": [16, 32], "kernel": 5, "hidden": [128, 84]}


def bits(text: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    return np.array([sign == "1" for sign in text if sign in "01"])


def test_table_2_in_bits() -> None:
    assert length("mlp") == 2 + 4 * 8 + 7
    assert length("cnn") == 2 + 3 * 6 + 1 + 2 + 3 * 8 + 7


def test_figure_3_by_hand() -> None:
    """Two hidden layers of 5 and 4 neurons, epsilon 20: every number one less in the bits."""
    text = "01  00000100 00000011 00000000 00000000  0010011"
    assert encode("mlp", MLP).bits.tolist() == bits(text).tolist()
    assert decode("mlp", Chromosome(bits(text), (0.1, 0.3))) == MLP


def test_all_zeros_and_all_ones() -> None:
    assert decode("mlp", smallest("mlp")) == {"hidden": [1], "epsilon": 1, "lr": 0.01, "xi": 0.01}
    most = decode("cnn", Chromosome(np.ones(length("cnn"), np.bool_), HIGH))
    assert most == {
        "filters": [64, 64, 64],  # 4 layers are clamped to 3
        "kernel": 5,
        "hidden": [256, 256, 256],
        "epsilon": 128,
        "lr": 0.3,
        "xi": 0.55,
    }
    assert decode("mlp", Chromosome(np.ones(length("mlp"), np.bool_), HIGH))["hidden"] == [256] * 4


def test_a_cnn_there_and_back() -> None:
    assert decode("cnn", encode("cnn", CNN)) == CNN


@given(st.sampled_from(["mlp", "cnn"]), st.integers(0, 10_000))
def test_random_chromosomes_are_in_range_and_survive_encoding(model: str, seed: int) -> None:
    found = decode(model, random_chromosome(model, stream(seed, "genes")))
    assert 1 <= len(found["hidden"]) <= (4 if model == "mlp" else 3)
    assert all(1 <= size <= 256 for size in found["hidden"])
    assert 1 <= found["epsilon"] <= 128 and 0.01 <= found["lr"] <= 0.3 and 0.01 <= found["xi"] <= 0.55
    if model == "cnn":
        assert 1 <= len(found["filters"]) <= 3 and all(1 <= size <= 64 for size in found["filters"])
        assert found["kernel"] in (3, 5)
    assert decode(model, encode(model, found)) == found


@given(st.lists(st.booleans(), min_size=54, max_size=54), st.floats(-1, 1), st.floats(-1, 1))
def test_repair_changes_the_genes_but_not_their_meaning(flags: list[bool], lr: float, xi: float) -> None:
    raw = Chromosome(np.array(flags), (lr, xi))
    repaired = repair("cnn", raw)
    assert decode("cnn", repaired) == decode("cnn", raw)
    again = repair("cnn", repaired)
    assert np.array_equal(again.bits, repaired.bits) and again.reals == repaired.reals
    assert all(low <= value <= high for low, value, high in zip(LOW, repaired.reals, HIGH, strict=True))


@pytest.mark.parametrize(
    ("chromosome", "code", "named"),
    [
        (Chromosome(np.zeros(40, np.bool_), LOW), "chromosome-size-mismatch", ["40 bits", "mlp", "41"]),
        (Chromosome(np.zeros(41, np.bool_), (0.1,)), "chromosome-size-mismatch", ["1 reals"]),
        (Chromosome(np.zeros(41, np.int64), LOW), "chromosome-size-mismatch", ["41 bits"]),
        (Chromosome(np.zeros(41, np.bool_), (float("nan"), 0.1)), "non-finite-values", ["nan"]),
    ],
)
def test_a_chromosome_of_another_form_is_refused(chromosome: Chromosome, code: str, named: list[str]) -> None:
    with refused(ArchitectureError, code, *named):
        decode("mlp", chromosome)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"hidden": []}, ["hidden = []", "4"]),
        ({"hidden": [1] * 5}, ["hidden = [1, 1, 1, 1, 1]", "4"]),
        ({"hidden": [257]}, ["hidden", "257", "256"]),
        ({"hidden": [0]}, ["hidden", "0", "256"]),
        ({"epsilon": 129}, ["epsilon = 129"]),
        ({"epsilon": 0}, ["epsilon = 0"]),
        ({"xi": 1.0}, ["xi = 1.0"]),
        ({"lr": 0.5}, ["lr = 0.5"]),
    ],
)
def test_encoding_enforces_the_bounds_of_table_2(wrong: dict[str, Any], named: list[str]) -> None:
    with refused(ArchitectureError, "value-not-encodable", *named):
        encode("mlp", {**MLP, **wrong})
    with refused(ArchitectureError, "unknown-model", "'mpl'", "'mlp'"):
        decode("mpl", smallest("mlp"))
