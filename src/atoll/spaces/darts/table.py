"""Names, shapes, sizes and costs of DARTS networks from a table per cell, edge and operation: no module is built.

The server cuts a sub-model out of the supernet's weights and prices it for every client of every round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.spaces.cost import Cost
from atoll.spaces.darts.layers import EDGES, ENDS, KINDS, NONE, OPERATIONS, Part, Shapes, operation
from atoll.spaces.darts.plan import CellPlan, DartsPlan, form_of, genotype_of, key_of, plan


@dataclass(frozen=True)
class PartEntry:
    """One part of a network: its parameters by their full names, and what running it costs."""

    shapes: Shapes
    macs: int
    params: int


NOTHING = PartEntry({}, 0, 0)


@dataclass(frozen=True)
class Table:
    """The parts of a supernet. `operations[cell][edge][operation]`; those of `none` are empty."""

    first: PartEntry
    preprocessing: tuple[PartEntry, ...]  # of every cell, both together
    operations: tuple[tuple[tuple[PartEntry, ...], ...], ...]
    last: PartEntry


def names(arch: Mapping[str, Any]) -> list[str]:
    """Names of the weights; a sub-model's are `weights.slice(names(arch))` of the supernet's. No alphas."""
    return [name for entry in _entries(arch) for name in entry.shapes]


def shapes(arch: Mapping[str, Any]) -> Shapes:
    """Names and shapes of the weights in the order of the module. No alphas."""
    return {name: shape for entry in _entries(arch) for name, shape in entry.shapes.items()}


def weight_count(arch: Mapping[str, Any]) -> int:
    """How many weights; architecture parameters are none."""
    if form_of(arch) != "path":
        return sum(entry.params for entry in _entries(arch))
    table, key, edges = operation_weights(arch), key_of(arch), np.arange(EDGES)
    return shared_weights(arch) + int(sum(table[kind][edges, key[kind]].sum() for kind in KINDS))


def cost(arch: Mapping[str, Any]) -> Cost:
    """MACs of one sample, weights, float32 bytes. A supernet runs all its operations."""
    entries = _entries(arch)
    params = sum(entry.params for entry in entries)
    return Cost(macs=sum(entry.macs for entry in entries), params=params, bytes=4 * params)


def shared_weights(arch: Mapping[str, Any]) -> int:
    """Weights that every sub-model has: stem, entrances of the cells, head."""
    table = _table(plan(arch))
    return sum(entry.params for entry in (table.first, *table.preprocessing, table.last))


def operation_weights(arch: Mapping[str, Any]) -> dict[str, Array]:
    """For both kinds of cells (14, 8): the weights that an operation on an edge adds, over all cells of the kind."""
    return {kind: sizes.copy() for kind, sizes in _sizes(plan(arch)).items()}


def expected_weights(arch: Mapping[str, Any], normal: Array, reduce: Array) -> float:
    """The mean size of a sub-model whose operations are drawn edge by edge with these probabilities (14, 8). Exact."""
    table = _sizes(plan(arch))
    drawn = sum(float((np.asarray(p) * table[kind]).sum()) for kind, p in zip(KINDS, (normal, reduce), strict=True))
    return shared_weights(arch) + drawn


def _entries(arch: Mapping[str, Any]) -> list[PartEntry]:
    """The parts of a network in the order of its module."""
    form, whole = form_of(arch), plan(arch)
    if form == "genotype":
        return _found(whole, genotype_of(arch))
    table = _table(whole)
    key = key_of(arch) if form == "path" else None
    entries = [table.first]
    for cell, preprocess, operations in zip(whole.cells, table.preprocessing, table.operations, strict=True):
        entries.append(preprocess)
        for edge, choices in enumerate(operations):
            entries += choices if key is None else [choices[key[cell.kind][edge]]]
    return [*entries, table.last]


def _found(whole: DartsPlan, genotype: Mapping[str, Any]) -> list[PartEntry]:
    entries = [_entry("stem.", *whole.stem)]
    for number, cell in enumerate(whole.cells):
        entries.append(_preprocessing(number, cell))
        for place, (word, source) in enumerate(genotype[cell.kind]):
            part = operation(word, cell.channels, cell.stride(source), retrained=True)
            entries.append(_entry(f"cells.{number}.edges.{place}.", part, cell.pixels))
    return [*entries, _head(whole)]


@lru_cache(maxsize=64)
def _table(whole: DartsPlan) -> Table:
    operations = tuple(
        tuple(tuple(_operation(number, cell, edge, word) for word in OPERATIONS) for edge in range(EDGES))
        for number, cell in enumerate(whole.cells)
    )
    preprocessing = tuple(_preprocessing(number, cell) for number, cell in enumerate(whole.cells))
    return Table(_entry("stem.", *whole.stem), preprocessing, operations, _head(whole))


@lru_cache(maxsize=64)
def _sizes(whole: DartsPlan) -> dict[str, Array]:
    sizes = {kind: np.zeros((EDGES, len(OPERATIONS)), np.int64) for kind in KINDS}
    for cell, operations in zip(whole.cells, _table(whole).operations, strict=True):
        sizes[cell.kind] += np.array([[entry.params for entry in choices] for choices in operations])
    return sizes


def _operation(number: int, cell: CellPlan, edge: int, word: str) -> PartEntry:
    if word == OPERATIONS[NONE]:
        return NOTHING
    part = operation(word, cell.channels, cell.stride(ENDS[edge][1]), retrained=False)
    return _entry(f"cells.{number}.edges.{edge}.{word}.", part, cell.pixels)


def _preprocessing(number: int, cell: CellPlan) -> PartEntry:
    each = [_entry(f"cells.{number}.inputs.{side}.", *one) for side, one in enumerate(cell.preprocessing)]
    together = {name: shape for entry in each for name, shape in entry.shapes.items()}
    return PartEntry(together, sum(entry.macs for entry in each), sum(entry.params for entry in each))


def _head(whole: DartsPlan) -> PartEntry:
    return _entry("head.", whole.head, 1)


def _entry(prefix: str, part: Part, pixels: int) -> PartEntry:
    own = {f"{prefix}{place}.{name}": shape for place, layer in enumerate(part) for name, shape in layer.shapes.items()}
    macs = sum(layer.macs(pixels) for layer in part)
    return PartEntry(own, macs, sum(math.prod(shape) for shape in own.values()))
