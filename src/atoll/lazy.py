"""Modules that are imported when they are used: torch takes seconds, and a wrong setting is reported without it.

A package whose modules need torch says `__getattr__ = lazy.submodules(__name__)`. Then `from atoll.training import sgd`
imports nothing yet; the first use of `sgd.train` does. A method imports such modules, not names out of them.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module that has not been imported; Python's own import lock keeps threads apart."""

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self.__name__), name)


def submodules(package: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package: its modules, imported when they are used."""

    def find(name: str) -> Any:
        if name.startswith("_") or find_spec(f"{package}.{name}") is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return LazyModule(f"{package}.{name}")

    return find
