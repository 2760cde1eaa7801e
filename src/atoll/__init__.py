"""Atoll: federated neural architecture search.

import atoll
run = atoll.algorithms("fedavg", "digits", rounds=20, out="runs/first")
run.result["candidates"], run.history, run.model("high")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.api import resume, retrain, search
    from atoll.data import Federated
    from atoll.run.reader import Run, load

__all__ = ["Federated", "Run", "load", "resume", "retrain", "search"]

_HOMES = {
    "Federated": "atoll.data",
    "Run": "atoll.run.reader",
    "load": "atoll.run.reader",
    "resume": "atoll.api",
    "retrain": "atoll.api",
    "search": "atoll.api",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are used: torch takes seconds, and a mistyped command should not wait."""
    if name not in _HOMES:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
