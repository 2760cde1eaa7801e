"""The words and numbers of the DARTS space (Liu et al., "DARTS: Differentiable Architecture Search", 2019).

A cell has two inputs (states 0 and 1, the outputs of the two cells before it) and four nodes (states 2 to 5). Every
node adds up what comes from all states before it, over one edge each: 2 + 3 + 4 + 5 = 14 edges, counted node by node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from atoll.errors import ArchitectureError

OPERATIONS = (
    "none",
    "max_pool_3x3",
    "avg_pool_3x3",
    "skip_connect",
    "sep_conv_3x3",
    "sep_conv_5x5",
    "dil_conv_3x3",
    "dil_conv_5x5",
)
NONE, SKIP = OPERATIONS.index("none"), OPERATIONS.index("skip_connect")
KINDS = ("normal", "reduce")
INPUTS, NODES = 2, 4
# (node, source state) of every edge
ENDS = tuple((node, source) for node in range(NODES) for source in range(INPUTS + node))
EDGES = len(ENDS)

Key = dict[str, tuple[int, ...]]


def edges_into(node: int) -> list[int]:
    """The edges that end in this node (0 to 3), by rising source."""
    return [edge for edge, (target, _) in enumerate(ENDS) if target == node]


def check_key(key: Any) -> Key:
    """One operation for every edge of both kinds of cells, as plain numbers; numbers of NumPy are taken too."""
    if not isinstance(key, Mapping) or set(key) != set(KINDS):
        raise ArchitectureError(
            f"a key is {_short(key)}: give an operation per edge for 'normal' and for 'reduce'", code="malformed-key"
        )
    return {kind: _operations(kind, key[kind]) for kind in KINDS}


def _operations(kind: str, values: Any) -> tuple[int, ...]:
    plain = values.tolist() if hasattr(values, "tolist") else values
    fits = isinstance(plain, Sequence) and len(plain) == EDGES
    if not fits or not all(isinstance(v, int) and not isinstance(v, bool) and 0 <= v < len(OPERATIONS) for v in plain):
        raise ArchitectureError(
            f"the key's '{kind}' is {_short(values)}: give {EDGES} whole numbers from 0 to {len(OPERATIONS) - 1}",
            code="malformed-key",
        )
    return tuple(plain)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
