"""Islands for tests: random settings, and populations grown apart without selection."""

from __future__ import annotations

from hypothesis import strategies as st

from atoll.rng import stream
from atoll.search.neat import structure
from atoll.search.neat.attributes import mutate_attributes
from atoll.search.neat.population import Population
from atoll.search.neat.settings import NeatSettings
from atoll.search.neat.start import first_generation

configurations = st.builds(
    NeatSettings,
    inputs=st.integers(1, 6),
    outputs=st.integers(1, 4),
    recurrent=st.booleans(),
    population=st.integers(2, 8),
    start=st.sampled_from(["fs_neat_nohidden", "unconnected", "full"]),
    node_add=st.floats(0.3, 1.0),
    link_add=st.floats(0.3, 1.0),
    node_delete=st.floats(0.0, 0.3),
    link_delete=st.floats(0.0, 0.3),
    enabled_mutation=st.floats(0.0, 0.5),
)


def grown(told: NeatSettings, seed: int, number: int) -> Population:
    rng = stream(seed, "island", number)
    population = first_generation(told, rng)
    for _ in range(6):
        population = mutate_attributes(structure.mutate_structure(population, told, rng), told, rng)
    return population
