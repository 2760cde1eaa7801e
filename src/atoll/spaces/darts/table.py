"""Names, shapes, sizes and costs of DARTS networks from a table per cell, edge and operation, without modules.

The server slices a sub-model from the supernet's weights and computes its cost for every client of every round.
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
    """One part of a network: its parameters by full name, and its MACs."""

    shapes: Shapes
    macs: int
    params: int


NOTHING = PartEntry({}, 0, 0)


@dataclass(frozen=True)
class Table:
    """The parts of a supernet. `operations[cell][edge][operation]` is empty for `none`."""

    first: PartEntry
    preprocessing: tuple[PartEntry, ...]  # one per cell, for both inputs
    operations: tuple[tuple[tuple[PartEntry, ...], ...], ...]
    last: PartEntry


def names(arch: Mapping[str, Any]) -> list[str]:
    """Names of the weights, without alphas; a sub-model's weights are `supernet_weights.slice(names(arch))`."""
    return [name for entry in _entries(arch) for name in entry.shapes]


def shapes(arch: Mapping[str, Any]) -> Shapes:
    """Names and shapes of the weights in module order, without alphas."""
    return {name: shape for entry in _entries(arch) for name, shape in entry.shapes.items()}


def weight_count(arch: Mapping[str, Any]) -> int:
    """The number of weights, without alphas."""
    if form_of(arch) != "path":
        return sum(entry.params for entry in _entries(arch))
    table, key, edges = operation_weights(arch), key_of(arch), np.arange(EDGES)
    return shared_weights(arch) + int(sum(table[kind][edges, key[kind]].sum() for kind in KINDS))


def cost(arch: Mapping[str, Any]) -> Cost:
    """MACs of one sample, weights, float32 bytes. A supernet executes all its operations."""
    entries = _entries(arch)
    params = sum(entry.params for entry in entries)
    return Cost(macs=sum(entry.macs for entry in entries), params=params, bytes=4 * params)


def shared_weights(arch: Mapping[str, Any]) -> int:
    """The number of weights in every sub-model: stem, preprocessing of the cells, head."""
    table = _table(plan(arch))
    return sum(entry.params for entry in (table.first, *table.preprocessing, table.last))


def operation_weights(arch: Mapping[str, Any]) -> dict[str, Array]:
    """For both kinds of cells (14, 8): the weights that an operation on an edge adds, summed over the cells."""
    return {kind: sizes.copy() for kind, sizes in _sizes(plan(arch)).items()}


def expected_weights(arch: Mapping[str, Any], normal: Array, reduce: Array) -> float:
    """The exact expected size of a sub-model whose operations are sampled with these probabilities (14, 8)."""
    table = _sizes(plan(arch))
    drawn = sum(float((np.asarray(p) * table[kind]).sum()) for kind, p in zip(KINDS, (normal, reduce), strict=True))
    return shared_weights(arch) + drawn


def _entries(arch: Mapping[str, Any]) -> list[PartEntry]:
    """The parts of a network in module order."""
    form, whole = form_of(arch), plan(arch)
    if form == "genotype":
        return _genotype_entries(whole, genotype_of(arch))
    table = _table(whole)
    key = key_of(arch) if form == "path" else None
    entries = [table.first]
    for cell, preprocessing, operations in zip(whole.cells, table.preprocessing, table.operations, strict=True):
        entries.append(preprocessing)
        for edge, choices in enumerate(operations):
            entries += choices if key is None else [choices[key[cell.kind][edge]]]
    return [*entries, table.last]


def _genotype_entries(whole: DartsPlan, genotype: Mapping[str, Any]) -> list[PartEntry]:
    entries = [_entry("stem.", *whole.stem)]
    for number, cell in enumerate(whole.cells):
        entries.append(_preprocessing(number, cell))
        for place, (name, source) in enumerate(genotype[cell.kind]):
            part = operation(name, cell.channels, cell.stride(source), retrained=True)
            entries.append(_entry(f"cells.{number}.edges.{place}.", part, cell.pixels))
    return [*entries, _head(whole)]


@lru_cache(maxsize=64)
def _table(whole: DartsPlan) -> Table:
    operations = tuple(
        tuple(tuple(_operation(number, cell, edge, name) for name in OPERATIONS) for edge in range(EDGES))
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


def _operation(number: int, cell: CellPlan, edge: int, name: str) -> PartEntry:
    if name == OPERATIONS[NONE]:
        return NOTHING
    part = operation(name, cell.channels, cell.stride(ENDS[edge][1]), retrained=False)
    return _entry(f"cells.{number}.edges.{edge}.{name}.", part, cell.pixels)


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
