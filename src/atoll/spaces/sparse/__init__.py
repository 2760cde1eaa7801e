"""The space of sparse networks (Zhu & Jin, multi-objective evolutionary federated learning)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll import lazy

if not TYPE_CHECKING:
    __getattr__ = lazy.submodules(__name__)
