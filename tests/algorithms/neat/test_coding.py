"""Genomes as bytes: there and back, small, and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.neat.islands import configurations, grown
from atoll.algorithms.neat.coding import GenomeBytes, GenomeLimits, decode, encode, read, to_json
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population, population_from_rows, split_name
from atoll.algorithms.neat.settings import NeatSettings
from atoll.core.checks import from_plain, inspect, to_plain

OUT, LIMITS = OUTPUTS_FROM, GenomeLimits(2, 1, 10, 20, 30.0, False)
A, B = split_name(0, OUT, 1), split_name(1, OUT, 1)


@given(configurations, st.integers(0, 10_000))
@settings(max_examples=30)
def test_encoding_and_decoding_are_exact(told: NeatSettings, seed: int) -> None:
    population = grown(told, seed, 1)
    for place in range(len(population)):
        genome = population[place]
        code = encode(genome, told.inputs, told.outputs)
        arrived = decode(code, GenomeLimits.of(told))
        for name, values in genome.to_plain().items():
            assert np.array_equal(getattr(arrived, name), values), name
        assert len(code) < len(to_json(genome)) / 3


def test_the_size_computed_by_hand() -> None:
    """Head 6, one name 8, two biases 8, two function bytes 2, three connections 3 x 8, flags 1."""
    assert len(encode(genome(), 2, 1)) == 6 + 8 + 8 + 2 + 24 + 1


def genome(connections: list[list[Any]] | None = None, **changed: Any) -> Population:
    plain = population_from_rows(
        [[[OUT, 0.5, 1.0, 0, 0], [A, -0.25, 1.0, 2, 1]]],
        [connections or [[0, A, 1.0, True], [A, OUT, 2.0, True], [1, OUT, 0.5, False]]],
    )
    return replace(plain, **changed)


def two_hidden(connections: list[list[Any]]) -> Population:
    rows = [[name, 0.0, 1.0, 0, 0] for name in (OUT, A, B)]
    return population_from_rows([rows], [connections])


BAD = {
    "cycle": (two_hidden([[A, B, 1.0, True], [B, A, 1.0, True], [A, OUT, 1.0, True]]), "cycle"),
    "self": (two_hidden([[A, A, 1.0, False], [A, OUT, 1.0, True]]), "cycle"),
    "nan": (genome(weight=np.array([1, np.nan, 0], np.float32)), "weight"),
    "infinite bias": (genome(bias=np.array([np.inf, 0], np.float32)), "bias"),
    "huge": (genome(weight=np.array([1, 31, 0], np.float32)), "+-30"),
    "activation": (genome(activation=np.array([0, 9], np.uint8)), "activation"),
    "aggregation": (genome(aggregation=np.array([0, 7], np.uint8)), "aggregation"),
    "twice": (genome([[0, A, 1.0, True], [0, A, 2.0, True]]), "two connections"),
    "into an input": (genome([[0, 1, 1.0, True]]), "ends at"),
    "out of an output": (genome([[OUT, A, 1.0, True]]), "output"),
}


@pytest.mark.parametrize(("bad", "reason"), BAD.values(), ids=BAD.keys())
def test_a_bad_genome_is_refused_with_its_reason(bad: Population, reason: str) -> None:
    code = encode(bad, 2, 1)
    rule = GenomeBytes(2, 1, 10, 20, 30.0, False)
    answer = inspect({"genome": code}, {"genome": from_plain(to_plain(rule))})
    assert answer is not None and answer.startswith("genome: ") and reason in answer
    with pytest.raises(ValueError, match=re.escape(reason)):
        decode(code, LIMITS)


def test_sizes_are_checked_before_anything_is_allocated() -> None:
    huge = encode(genome(), 2, 1)
    huge[2:4] = (255, 255)  # announces 65,535 hidden nodes
    reason = read(huge, LIMITS)[0]
    assert all(number in reason for number in ("65535", "3", "10", "20"))
    lying = encode(genome(), 2, 1)
    lying[4] = 19
    assert "bytes" in read(lying, LIMITS)[0]


def test_a_connection_to_a_missing_node_is_refused() -> None:
    code = encode(genome(), 2, 1)
    code[6 + 8 + 8 + 2] = 200
    assert "200" in read(code, LIMITS)[0]


def test_a_repeated_or_invalid_hidden_name_is_refused() -> None:
    twice = population_from_rows([[[OUT, 0, 1, 0, 0], [A, 0, 1, 0, 0], [A, 0, 1, 0, 0]]], [[]])
    assert "name" in read(encode(twice, 2, 1), LIMITS)[0]
    code = encode(genome(), 2, 1)
    code[13] = 0  # the highest byte of the name
    assert "name" in read(code, LIMITS)[0]


@given(st.binary(max_size=120), st.booleans())
@settings(max_examples=300)
def test_any_bytes_give_a_valid_genome_or_a_reason(data: bytes, likely: bool) -> None:
    code = np.frombuffer((b"\x01\x00\x01\x00\x02\x00" if likely else b"") + data, np.uint8)
    reason, found = read(code, LIMITS)
    assert (reason == "") == (found is not None)


def test_values_other_than_bytes_are_refused() -> None:
    rule = GenomeBytes(2, 1, 10, 20, 30.0, False)
    for value in (None, "x", np.zeros(3), np.zeros((2, 2), np.uint8)):
        assert str(rule.problem(value)).startswith("schema")
