"""Genotypes: read off a policy, drawn, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from atoll.errors import ArchitectureError
from atoll.rng import stream
from atoll.spaces.darts.genotype import (
    check_genotype,
    genotype,
    path_key,
    random_genotype,
    sampled_genotype,
    skip_share,
)
from atoll.spaces.darts.layers import EDGES, ENDS, KINDS, OPERATIONS, SKIP, edges_into
from refusals import refused


def test_edges_are_counted_node_by_node() -> None:
    assert EDGES == 14
    assert [edges_into(node) for node in range(4)] == [[0, 1], [2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12, 13]]
    assert ENDS[0] == (0, 0) and ENDS[4] == (1, 2) and ENDS[13] == (3, 4)


def test_the_derivation_by_hand() -> None:
    alphas = np.zeros((EDGES, 8))
    alphas[0, 4], alphas[1, 5] = 1.0, 2.0  # node 0: both edges, the better one first
    alphas[2, 1], alphas[3, 3], alphas[4, 0] = 1.0, 0.5, 9.0  # node 1: edge 4 is nearly all `none`
    alphas[5, 6], alphas[8, 7] = 3.0, 1.0  # node 2: sources 0 and 3
    alphas[9:, 2] = [0.1, 0.2, 0.3, 0.4, 0.5]  # node 3: the last two
    assert genotype(alphas, np.zeros((EDGES, 8)))["normal"] == [
        ["sep_conv_5x5", 1],
        ["sep_conv_3x3", 0],
        ["max_pool_3x3", 0],
        ["skip_connect", 1],
        ["dil_conv_3x3", 0],
        ["dil_conv_5x5", 3],
        ["avg_pool_3x3", 4],
        ["avg_pool_3x3", 3],
    ]


def test_the_probability_counts_not_the_parameter() -> None:
    """Edge 2 has the larger parameter but shares its probability with another operation."""
    alphas = np.zeros((EDGES, 8))
    alphas[2, [4, 5]] = 2.0
    alphas[3, 4] = 1.9
    alphas[4, 7] = 1.8
    assert [source for _, source in genotype(alphas, alphas)["normal"][2:4]] == [1, 2]


def test_ties_go_to_the_earlier_one() -> None:
    flat = np.zeros((EDGES, 8))
    assert genotype(flat, flat)["reduce"] == [["max_pool_3x3", 0], ["max_pool_3x3", 1]] * 4


def test_drawn_genotypes_are_valid_and_cover_the_space() -> None:
    rng = np.random.default_rng(0)
    drawn = [random_genotype(rng) for _ in range(200)]
    assert all(check_genotype(one) == one for one in drawn)
    assert {word for one in drawn for word, _ in one["normal"]} == set(OPERATIONS) - {"none"}
    assert {source for one in drawn for _, source in one["reduce"][6:]} == {0, 1, 2, 3, 4}
    assert random_genotype(np.random.default_rng(3)) == random_genotype(np.random.default_rng(3))


def test_the_share_of_skip_connections() -> None:
    one = {"normal": [["skip_connect", 0], ["skip_connect", 1]] * 4, "reduce": [["max_pool_3x3", 0]] * 8}
    assert skip_share(one) == 0.5
    policy = {kind: np.full((EDGES, 8), 1 / 8) for kind in KINDS}
    assert skip_share(policy) == 1 / 8
    policy["normal"] = np.eye(8)[[SKIP] * EDGES]
    assert skip_share(policy) == (1 + 1 / 8) / 2
    assert skip_share({kind: table.tolist() for kind, table in policy.items()}) == (1 + 1 / 8) / 2
    with pytest.raises(ValueError, match=r"\(8, 14\)"):
        skip_share({"normal": np.zeros((8, 14)), "reduce": np.zeros((8, 14))})


@pytest.mark.parametrize(
    ("place", "pair", "code", "named"),
    [
        (0, ["none", 0], "unknown-operation", ["'none'"]),
        (0, ["sep_conv_3", 0], "unknown-operation", ["'sep_conv_3'", "'sep_conv_3x3'"]),
        (1, ["skip_connect", 2], "unknown-state", ["node 0", "state 2", "0 to 1"]),
        (7, ["skip_connect", 5], "unknown-state", ["node 3", "state 5"]),
        (3, ["skip_connect", True], "unknown-state", ["node 1", "state True"]),
        (1, ["skip_connect", 0], "repeated-state", ["node 0", "state 0"]),
        (4, "skip", "malformed-genotype", ["'skip'"]),
    ],
)
def test_genotypes_that_cannot_be(place: int, pair: Any, code: str, named: list[str]) -> None:
    wrong = {kind: [["max_pool_3x3", 0], ["avg_pool_3x3", 1]] * 4 for kind in KINDS}
    wrong["reduce"][place] = pair
    with refused(ArchitectureError, code, "genotype.reduce", *named):
        check_genotype(wrong)


def test_cells_drawn_from_a_decided_policy_are_its_likeliest() -> None:
    rng = stream(2, "alphas")
    alphas = 30 * rng.standard_normal((2, 14, 8))
    alphas[..., 0] = -100.0  # never `none`
    for number in range(3):
        drawn = sampled_genotype(*alphas, stream(3, number))
        assert check_genotype(drawn) == drawn
        assert {kind: sorted(map(str, drawn[kind])) for kind in drawn} == {
            kind: sorted(map(str, cells)) for kind, cells in genotype(*alphas).items()
        }
    varied = [sampled_genotype(*np.zeros((2, 14, 8)), stream(4, number)) for number in range(5)]
    assert len({str(one) for one in varied}) == 5 and "none" not in str(varied)


def test_the_path_of_a_genotype_has_its_operations_and_none_elsewhere() -> None:
    cells = random_genotype(stream(5))
    keys = path_key(cells)
    for kind in ("normal", "reduce"):
        assert len(keys[kind]) == 14 and sum(key != 0 for key in keys[kind]) == 8
        for number, (name, source) in enumerate(cells[kind]):
            edge = [(node, one) for node in range(4) for one in range(2 + node)].index((number // 2, source))
            assert OPERATIONS[keys[kind][edge]] == name
