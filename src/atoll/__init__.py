"""Atoll: federated neural architecture search.

import atoll
run = atoll.search("fedavg", "digits", rounds=20, out="runs/first")
run.result["candidates"], run.history, run.model("high")
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from atoll.api import resume, retrain, search, sweep
    from atoll.data import Federated
    from atoll.methods.base import Candidate, Method, MethodConfig
    from atoll.run.loop import Watcher
    from atoll.run.reader import Run, load

    __version__: str

__all__ = [
    "Candidate",
    "Federated",
    "Method",
    "MethodConfig",
    "Run",
    "Watcher",
    "__version__",
    "load",
    "resume",
    "retrain",
    "search",
    "sweep",
]

_MODULES = {
    "Candidate": "atoll.methods.base",
    "Federated": "atoll.data",
    "Method": "atoll.methods.base",
    "MethodConfig": "atoll.methods.base",
    "Run": "atoll.run.reader",
    "Watcher": "atoll.run.loop",
    "load": "atoll.run.reader",
    "resume": "atoll.api",
    "retrain": "atoll.api",
    "search": "atoll.api",
    "sweep": "atoll.api",
}


def __getattr__(name: str) -> Any:
    """Public names are imported when they are used: torch takes seconds, and a mistyped command should not wait."""
    if name == "__version__":
        return version("atoll")
    if name not in _MODULES:
        raise AttributeError(f"module 'atoll' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
