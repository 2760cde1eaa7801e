"""Islands for tests: random settings, and populations grown apart without selection."""

from __future__ import annotations

from hypothesis import strategies as st

from atoll.algorithms.neat import variation
from atoll.algorithms.neat.population import Population, first_generation
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.variation import mutate_attributes
from atoll.rng import stream

configurations = st.builds(
    NeatSettings,
    inputs=st.integers(1, 6),
    outputs=st.integers(1, 4),
    recurrent=st.booleans(),
    population=st.integers(2, 8),
    start=st.sampled_from(["fs_neat_nohidden", "unconnected", "full"]),
    node_add=st.floats(0.3, 1.0),
    connection_add=st.floats(0.3, 1.0),
    node_delete=st.floats(0.0, 0.3),
    connection_delete=st.floats(0.0, 0.3),
    enabled_mutation=st.floats(0.0, 0.5),
)


def grown(told: NeatSettings, seed: int, number: int) -> Population:
    rng = stream(seed, "island", number)
    population = first_generation(told, rng)
    for _ in range(6):
        population = mutate_attributes(variation.mutate_structure(population, told, rng), told, rng)
    return population
