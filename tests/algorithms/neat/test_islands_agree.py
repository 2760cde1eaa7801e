"""Islands that never talk name the same things alike, and crossing never lines up different genes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.neat.islands import configurations, grown
from atoll.algorithms.neat import variation
from atoll.algorithms.neat.population import Population, align, joined, split_name
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.variation import cross
from atoll.rng import stream

Origin = tuple[int, int, int]


def test_the_same_split_has_the_same_name_everywhere_and_others_have_others() -> None:
    names = {split_name(a, b, k) for a in range(20) for b in range(20) for k in (1, 2)}
    assert len(names) == 800
    assert split_name(3, 1 << 32, 1) == split_name(3, 1 << 32, 1)


def recorded(known: dict[int, Origin]) -> Callable[[int, int, int], int]:
    """`split_name`, remembering where each name comes from and refusing a second origin."""

    def name_it(source: int, target: int, occurrence: int) -> int:
        name = split_name(source, target, occurrence)
        assert known.setdefault(name, (source, target, occurrence)) == (source, target, occurrence)
        return name

    return name_it


@given(configurations, st.integers(0, 10_000))
@settings(max_examples=40)
def test_crossing_genomes_of_different_clients_never_aligns_different_genes(told: NeatSettings, seed: int) -> None:
    known: dict[int, Origin] = {}
    before: Any = variation.split_name
    variation.split_name = recorded(known)  # type: ignore[attr-defined]
    try:
        islands = [grown(told, seed, number) for number in range(3)]
    finally:
        variation.split_name = before  # type: ignore[attr-defined]
    everyone = joined(islands)
    alignment = align(everyone)
    for number in range(alignment.nodes.place.shape[1]):
        places = alignment.nodes.place[:, number]
        assert len(set(everyone.node[places[places >= 0]].tolist())) == 1
    for number in range(alignment.connections.place.shape[1]):
        places = alignment.connections.place[:, number]
        places = places[places >= 0]
        assert len(set(zip(everyone.source[places].tolist(), everyone.target[places].tolist(), strict=True))) == 1
    one, other = np.arange(len(everyone)), np.roll(np.arange(len(everyone)), told.population)
    children = cross(everyone, alignment, one, other, stream(seed, "cross"))
    # A child has the fitter parent's genes, and every value is that of the gene of the same name in a parent.
    for name in ("node", "source", "target"):
        assert np.array_equal(getattr(children, name), getattr(everyone, name))
    for place in range(len(everyone)):
        weights = [by_name(everyone[int(parent)]) for parent in (one[place], other[place])]
        for key, weight in by_name(children[place]).items():
            assert weight in {own[key] for own in weights if key in own}


def by_name(genome: Population) -> dict[tuple[int, int], float]:
    ends = zip(genome.source.tolist(), genome.target.tolist(), strict=True)
    return dict(zip(ends, genome.weight.tolist(), strict=True))
