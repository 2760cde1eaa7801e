"""Evolved networks: {"space": "genome", "input": [F], "classes": N, "nodes": [...], "connections": [...], ...}.

    nodes         [label, activation, aggregation] each; the outputs o0, o1, ... first, then the hidden nodes
    connections   [source, target] each, as labels; inputs are i0, i1, ...
    edges         empty: one output per class; otherwise a single output, divided into class ranges at these values
    recurrent     false, or true with `steps` time steps per row and `passes` on each step

Weights are `weight` (one per connection), `bias` and `response` (one per node) in float32; the network computes in
float64. `forward` returns one number per class; the largest marks the predicted class.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from atoll.algorithms.neat.coding import GenomeLimits, problem_of
from atoll.algorithms.neat.expression import ExpressedNode, name_from_label, nodes_in_order
from atoll.algorithms.neat.functions import ACTIVATIONS, AGGREGATIONS, CLAMP, RELU_LIMIT, STEEP
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population, population_from_rows
from atoll.core.messages import Tensors
from atoll.errors import ArchitectureError, nearest
from atoll.spaces.cost import Cost

KEYS = {"space", "input", "classes", "recurrent", "steps", "passes", "edges", "nodes", "connections"}
MOST = 1 << 15  # nodes or connections of an architecture; genomes in messages have much lower limits


class GenomeNetwork(nn.Module):
    """An evolved network, computed node by node on whole batches."""

    def __init__(self, arch: Mapping[str, Any]) -> None:
        super().__init__()
        self.recurrent, self.edges = bool(arch.get("recurrent", False)), tuple(arch.get("edges", ()))
        self.steps, self.passes = int(arch.get("steps", 1)), int(arch.get("passes", 1))
        self.classes = int(arch["classes"])
        genome = genome_of(arch, Tensors({}))
        # Parameters are looked up by position in the genome, because `nodes` is in order of computation.
        self.nodes = nodes_in_order(genome, self.recurrent)
        self.node_place = {name: place for place, name in enumerate(genome.node.tolist())}
        ends = zip(genome.source.tolist(), genome.target.tolist(), strict=True)
        self.connection_place = {pair: place for place, pair in enumerate(ends)}
        self.weight = nn.Parameter(torch.zeros(len(genome.source)))
        self.bias = nn.Parameter(torch.zeros(len(genome.node)))
        self.response = nn.Parameter(torch.zeros(len(genome.node)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(1).double()
        if not self.recurrent:
            values = {place: rows[:, place] for place in range(rows.shape[1])}
            for node in self.nodes:
                values[node.name] = self._value(node, values, rows)
        else:
            values = self._through_time(rows)
        outputs = 1 if self.edges else self.classes
        scores = torch.stack([values[OUTPUTS_FROM + place] for place in range(outputs)], dim=1)
        return within(scores, self.edges) if self.edges else scores

    def _through_time(self, rows: torch.Tensor) -> dict[int, torch.Tensor]:
        series = rows.view(-1, self.steps, rows.shape[1] // self.steps)  # any number of rows, for export
        values = {node.name: torch.zeros_like(rows[:, 0]) for node in self.nodes}
        for step in range(self.steps):
            inputs = {place: series[:, step, place] for place in range(series.shape[2])}
            for _ in range(self.passes):
                before = {**values, **inputs}
                values |= {node.name: self._value(node, before, rows) for node in self.nodes if node.connections}
        return values

    def _value(self, node: ExpressedNode, values: Mapping[int, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        weight, place = self.weight.double(), self.node_place[node.name]
        total = torch.full_like(rows[:, 0], 0.0 if node.aggregation == "sum" else 1.0)
        for source, _ in node.connections:
            reached = values[source] * weight[self.connection_place[source, node.name]]
            total = total + reached if node.aggregation == "sum" else total * reached
        return activated(node.activation, self.bias[place].double() + self.response[place].double() * total)


def activated(name: str, z: torch.Tensor) -> torch.Tensor:
    """As in `atoll.algorithms.neat.functions`."""
    if name == "relu":
        return z.nan_to_num(0.0).clamp(0.0, RELU_LIMIT)
    z = (z * STEEP[name]).nan_to_num(CLAMP).clamp(-CLAMP, CLAMP)
    if name == "sigmoid":
        return 1.0 / (1.0 + torch.exp(-z))
    if name == "tanh":
        return torch.tanh(z)
    return torch.sin(z) if name == "sin" else 0.2 * torch.log1p(torch.exp(z))


def within(values: torch.Tensor, edges: tuple[float, ...]) -> torch.Tensor:
    """The distance of a value to the nearest end of each class range, negative outside: the largest marks its class."""
    low = values.new_tensor([-math.inf, *edges])
    high = values.new_tensor([*edges, math.inf])
    return torch.minimum(values - low, high - values)


def build(arch: Mapping[str, Any]) -> nn.Module:
    return GenomeNetwork(arch)


def cost(arch: Mapping[str, Any]) -> Cost:
    """One multiply-accumulate per connection and time step; 4 bytes per parameter."""
    genome = genome_of(arch, Tensors({}))
    times = int(arch.get("steps", 1)) * int(arch.get("passes", 1)) if arch.get("recurrent") else 1
    params = len(genome.source) + 2 * len(genome.node)
    return Cost(macs=len(genome.source) * times, params=params, bytes=4 * params)


def initial(arch: Mapping[str, Any], rng: np.random.Generator) -> Tensors:
    """Standard normal weights and biases."""
    genome = genome_of(arch, Tensors({}))
    return Tensors(
        {
            "weight": rng.standard_normal(len(genome.source)).astype(np.float32),
            "bias": rng.standard_normal(len(genome.node)).astype(np.float32),
            "response": np.ones(len(genome.node), np.float32),
        }
    )


def weights_of(genome: Population) -> Tensors:
    """The weights that belong to the architecture of an expressed genome."""
    return Tensors({"weight": genome.weight, "bias": genome.bias, "response": genome.response})


def genome_of(arch: Mapping[str, Any], weights: Tensors) -> Population:
    """The genome of an architecture and its weights (zeros if missing). Raises an `ArchitectureError` if invalid."""
    for key in arch:
        if key not in KEYS:
            raise ArchitectureError(f"genome: unknown setting {key!r}; {nearest(key, KEYS)}", code="unknown-setting")
    nodes, connections = arch.get("nodes", []), arch.get("connections", [])
    if len(nodes) > MOST or len(connections) > MOST:
        raise ArchitectureError(
            f"genome of {len(nodes)} nodes and {len(connections)} connections: at most {MOST} of each are allowed",
            code="network-too-large",
        )
    try:
        rows = [
            [name_from_label(name), 0.0, 1.0, _code(act, ACTIVATIONS), _code(how, AGGREGATIONS)]
            for name, act, how in nodes
        ]
        ends = [[name_from_label(source), name_from_label(target), 0.0, True] for source, target in connections]
    except (ValueError, TypeError) as problem:
        raise ArchitectureError(f"genome cannot be read: {problem}", code="unreadable-architecture") from None
    genome = population_from_rows([rows], [ends])
    values = {name: np.asarray(weights[name], np.float32) for name in weights}
    genome = Population(**{**genome.to_plain(), **values})
    outputs = 1 if arch.get("edges") else int(arch["classes"])
    features = math.prod(arch["input"]) // int(arch.get("steps", 1))
    limits = GenomeLimits(features, outputs, MOST, MOST, math.inf, bool(arch.get("recurrent", False)))
    reason = problem_of(genome, limits)
    if reason:
        raise ArchitectureError(f"genome cannot be built: {reason}", code="unusable-genome")
    return genome


def _code(text: str, known: tuple[str, ...]) -> int:
    if text not in known:
        raise ValueError(f"unknown function {text!r}; {nearest(str(text), known)}")
    return known.index(text)
