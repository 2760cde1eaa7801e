"""Atoll: federated neural architecture search.

import atoll
run = atoll.search("fedavg", "digits", rounds=20, out="runs/first")
run.result["candidates"], run.history, run.model("high")
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.data import Federated
    from atoll.reading import Run, load
    from atoll.searching import resume, retrain, search

__all__ = ["Federated", "Run", "load", "resume", "retrain", "search"]

_HOMES = {
    "Federated": "atoll.data",
    "Run": "atoll.reading",
    "load": "atoll.reading",
    "resume": "atoll.searching",
    "retrain": "atoll.searching",
    "search": "atoll.searching",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are used: torch takes seconds, and a mistyped command should not wait."""
    if name not in _HOMES:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


class _Package(ModuleType):
    """`atoll.search` is a function for users; the room of that name is reached by `from atoll.search import ...` only.

    Without this, the first import of the room would put the room in the function's place.
    """

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "search" or not isinstance(value, ModuleType):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
