"""Training and evaluation on one client's data: the hot loops. Its modules are imported when they are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll import lazy

if not TYPE_CHECKING:
    __getattr__ = lazy.submodules(__name__)
