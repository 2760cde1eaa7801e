"""The methods: one paper, one file. They are found by name: entry points in the group `atoll.methods`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError
from atoll.registry import find, names

if TYPE_CHECKING:
    from atoll.methods.base import Method


def find_method(name: str) -> type[Method[Any]]:
    """The class of a registered method, or the one at `module:Class`, imported when asked for."""
    from atoll.methods.base import MethodConfig

    found: type[Method[Any]] = find("methods", name)
    if not (isinstance(found.Config, type) and issubclass(found.Config, MethodConfig)):
        raise ConfigError(
            f"method = {name!r}: its `Config` is {found.Config!r}; derive it from atoll.methods.base.MethodConfig",
            code="plugin-lacks-member",
        )
    if found.name in names("methods") and (taken := find("methods", found.name)) is not found:
        raise ConfigError(
            f"method = {name!r}: its `name`, {found.name!r}, is that of {taken.__module__}:{taken.__qualname__}; "
            "give it another",
            code="name-registered-twice",
        )
    return found
