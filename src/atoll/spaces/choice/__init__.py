"""The space of choice blocks (Zhu & Jin, real-time federated evolutionary NAS)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll import lazy

if not TYPE_CHECKING:
    __getattr__ = lazy.submodules(__name__)
