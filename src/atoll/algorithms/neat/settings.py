"""Settings of NEAT: the paper's Table 3, and neat-python's xor example for what the table leaves open."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS

Start = Literal["fs_neat_nohidden", "unconnected", "full"]


@dataclass(frozen=True)
class NeatSettings:
    """`inputs` and `outputs` come from the data; everything else has a default."""

    inputs: int
    outputs: int
    recurrent: bool = False
    population: int = 200
    start: Start = "fs_neat_nohidden"
    activations: tuple[str, ...] = ACTIVATIONS
    aggregations: tuple[str, ...] = AGGREGATIONS
    activation_start: str = "sigmoid"  # of new nodes; "random": any of `activations`
    aggregation_start: str = "sum"
    activation_mutation: float = 0.4
    aggregation_mutation: float = 0.4
    connection_add: float = 0.4
    connection_delete: float = 0.1
    node_add: float = 0.4
    node_delete: float = 0.1
    weight_mutation: float = 0.8
    weight_replace: float = 0.1
    weight_power: float = 0.5
    bias_mutation: float = 0.7
    bias_replace: float = 0.1
    bias_power: float = 0.5
    response_mutation: float = 0.0
    response_replace: float = 0.0
    response_power: float = 0.0
    enabled_mutation: float = 0.01
    bound: float = 30.0  # weights, biases and responses stay within +-bound
    disjoint_coefficient: float = 1.0
    weight_coefficient: float = 0.5
    threshold: float = 3.0  # a genome nearer than this to a representative joins its species
    elitism: int = 1
    species_elitism: int = 1
    stagnation: int = 10
    survival: float = 0.2
    species_size: int = 2  # minimum
    max_hidden: int = 100
    max_connections: int = 5000

    def to_plain(self) -> dict[str, Any]:
        """As plain data, for a payload."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> NeatSettings:
        lists = {name: tuple(plain[name]) for name in ("activations", "aggregations")}
        return cls(**{**plain, **lists})
