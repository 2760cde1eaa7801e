"""neat-python as the oracle: random genomes, conversion in both directions, and its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import neat
import numpy as np
from neat.genes import DefaultConnectionGene, DefaultNodeGene

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS
from atoll.algorithms.neat.population import (
    OUTPUTS_FROM,
    Population,
    first_generation,
    is_hidden,
    is_input,
    population_from_rows,
    split_name,
)
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.variation import mutate_attributes, mutate_structure
from atoll.rng import Generator

CONFIG = """
[NEAT]
fitness_criterion = max
fitness_threshold = 2.0
no_fitness_termination = True
pop_size = {population}
reset_on_extinction = False
[DefaultGenome]
activation_default = sigmoid
activation_mutate_rate = 0.4
activation_options = sigmoid tanh relu sin softplus
aggregation_default = sum
aggregation_mutate_rate = 0.4
aggregation_options = sum product
bias_init_mean = 0.0
bias_init_stdev = 1.0
bias_init_type = gaussian
bias_max_value = 30.0
bias_min_value = -30.0
bias_mutate_power = 0.5
bias_mutate_rate = 0.7
bias_replace_rate = 0.1
compatibility_disjoint_coefficient = 1.0
compatibility_weight_coefficient = 0.5
conn_add_prob = 0.4
conn_delete_prob = 0.1
enabled_default = True
enabled_mutate_rate = 0.01
enabled_rate_to_true_add = 0.0
enabled_rate_to_false_add = 0.0
feed_forward = {feed_forward}
initial_connection = fs_neat_nohidden
node_add_prob = 0.4
node_delete_prob = 0.1
num_hidden = 0
num_inputs = {inputs}
num_outputs = {outputs}
response_init_mean = 1.0
response_init_stdev = 0.0
response_init_type = gaussian
response_max_value = 30.0
response_min_value = -30.0
response_mutate_power = 0.0
response_mutate_rate = 0.0
response_replace_rate = 0.0
single_structural_mutation = False
structural_mutation_surer = default
weight_init_mean = 0.0
weight_init_stdev = 1.0
weight_init_type = gaussian
weight_max_value = 30.0
weight_min_value = -30.0
weight_mutate_power = 0.5
weight_mutate_rate = 0.8
weight_replace_rate = 0.1
time_constant_init_mean = 1.0
time_constant_init_stdev = 0.0
time_constant_init_type = gaussian
time_constant_max_value = 10.0
time_constant_min_value = 0.01
time_constant_mutate_power = 0.0
time_constant_mutate_rate = 0.0
time_constant_replace_rate = 0.0
[DefaultSpeciesSet]
compatibility_threshold = 3.0
[DefaultStagnation]
species_fitness_func = max
max_stagnation = 10
species_elitism = 1
[DefaultReproduction]
elitism = 1
survival_threshold = 0.2
min_species_size = 2
"""


def neat_config(settings: NeatSettings, folder: Path) -> Any:
    """neat-python's settings that are equal to ours."""
    path = folder / "neat.cfg"
    path.write_text(
        CONFIG.format(
            population=settings.population,
            inputs=settings.inputs,
            outputs=settings.outputs,
            feed_forward=not settings.recurrent,
        )
    )
    kinds = (neat.DefaultGenome, neat.DefaultReproduction, neat.DefaultSpeciesSet, neat.DefaultStagnation)
    return neat.Config(*kinds, str(path))


def random_genomes(settings: NeatSettings, generations: int, rng: Generator) -> Population:
    """A population mutated so many times, without selection: varied structures."""
    population = first_generation(settings, rng)
    for _ in range(generations):
        population = mutate_attributes(mutate_structure(population, settings, rng), settings, rng)
    return population


def numbers(population: Population) -> dict[int, int]:
    """neat-python's numbers for our names: inputs negative, outputs from 0, hidden ones after them."""
    hidden = sorted({name for name in population.node.tolist() if is_hidden(name)})
    outputs = sorted({name for name in population.node.tolist() if not is_hidden(name)})
    return {name: number for number, name in enumerate(outputs + hidden)}


def to_neat(genome: Population, key: int, table: dict[int, int]) -> Any:
    """One genome of ours as one of neat-python's."""

    def number(name: int) -> int:
        return -1 - name if is_input(name) else table[name]

    made = neat.DefaultGenome(key)
    for place, name in enumerate(genome.node.tolist()):
        node = DefaultNodeGene(number(name))
        node.bias, node.response = float(genome.bias[place]), float(genome.response[place])
        node.activation = ACTIVATIONS[int(genome.activation[place])]
        node.aggregation = AGGREGATIONS[int(genome.aggregation[place])]
        node.time_constant = 1.0
        made.nodes[node.key] = node
    for place, (source, target) in enumerate(zip(genome.source.tolist(), genome.target.tolist(), strict=True)):
        connection = DefaultConnectionGene((number(source), number(target)), innovation=place)
        connection.weight, connection.enabled = float(genome.weight[place]), bool(genome.enabled[place])
        made.connections[connection.key] = connection
    return made


def from_neat(genome: Any, outputs: int) -> Population:
    """One genome of neat-python's as one of ours; its hidden nodes get names of our kind."""

    def name(number: int) -> int:
        if number < 0:
            return -1 - number
        return OUTPUTS_FROM + number if number < outputs else split_name(0, number, 1)

    nodes = [
        [name(key), n.bias, n.response, ACTIVATIONS.index(n.activation), AGGREGATIONS.index(n.aggregation)]
        for key, n in sorted(genome.nodes.items())
    ]
    connections = [
        [name(a), name(b), connection.weight, connection.enabled] for (a, b), connection in genome.connections.items()
    ]
    return population_from_rows([nodes], [connections])


def neat_answers(network: Any, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Row by row, as neat-python does it: outputs x rows."""
    return np.array([network.activate(row) for row in x.tolist()]).T
