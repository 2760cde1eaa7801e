"""Atoll: federated neural architecture search.

import atoll
run = atoll.search("fedavg", "digits", rounds=20, out="runs/first")
run.result["candidates"], run.history, run.model("high")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.data import Federated
    from atoll.reading import Run, load
    from atoll.searching import resume, search

__all__ = ["Federated", "Run", "load", "resume", "search"]

_HOMES = {
    "Federated": "atoll.data",
    "Run": "atoll.reading",
    "load": "atoll.reading",
    "resume": "atoll.searching",
    "search": "atoll.searching",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are used: torch takes seconds, and a mistyped command should not wait."""
    if name not in _HOMES:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
