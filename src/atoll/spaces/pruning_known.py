"""Couplings that were found once, kept for all widths of a network."""

from __future__ import annotations

import json

from atoll.errors import ArchitectureError
from atoll.spaces.pruning_graph import Couplings
from atoll.spaces.pruning_trace import analysed
from atoll.spaces.widths_plan import Plan

_kept: dict[str, list[Couplings]] = {}


def couplings(plan: Plan) -> tuple[Couplings, dict[str, int]]:
    """The couplings of a network, and the width of each unit.

    Networks that differ in widths only mostly have the same couplings. They are kept, and checked against the widths
    before they are used again, so that an answer never depends on what was asked before.
    """
    kept = _kept.setdefault(_topology(plan), [])
    for known in kept:
        widths = known.widths(plan.layers)
        if widths is not None:
            return known, widths
    fresh = analysed(plan)
    widths = fresh.widths(plan.layers)
    if widths is None:
        raise ArchitectureError("the widths of this network depend on each other in a way that pruning cannot follow")
    kept.append(fresh)
    return fresh, widths


def _topology(plan: Plan) -> str:
    """Everything but widths."""
    layers = {name: layer.model_dump(exclude={"inputs", "outputs", "channels"}) for name, layer in plan.layers.items()}
    return json.dumps([plan.input, plan.classes, layers, [node.model_dump() for node in plan.program]], sort_keys=True)
