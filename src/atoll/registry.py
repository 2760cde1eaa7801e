"""One lookup for what can be added from outside: methods, spaces, engines, data sets and figures.

Each is an entry point of an installed package. Atoll's own are registered in its pyproject.toml like any other:

    [project.entry-points."atoll.methods"]
    fedprox = "own_method.fedprox:FedProx"

The object behind a name is imported when it is looked up. An object that is not registered is named by its place,
`module:attribute`; spaces are not, because their names arrive in messages and must not import arbitrary modules.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

from atoll.errors import ArchitectureError, AtollError, ConfigError, DataError, UserError, nearest


class Group(NamedTuple):
    """What the entries of a group are called, what they must have, and how a wrong name is reported."""

    word: str
    setting: str
    members: tuple[str, ...]
    error: type[UserError]


METHOD_MEMBERS = ("name", "summary", "Config", "State", "centralised", "init", "step", "done", "snapshots", "results")
GROUPS = {
    "methods": Group("method", "method", METHOD_MEMBERS, ConfigError),
    "spaces": Group("space", "space", ("build",), ArchitectureError),
    "engines": Group("engine", "engine.name", ("__call__",), ConfigError),
    "datasets": Group("dataset", "data.name", ("kind", "rows", "classes", "origin", "read"), DataError),
    "figures": Group("figure", "figure", ("name", "summary", "applies", "draw"), ConfigError),
}


def names(group: str) -> list[str]:
    """The registered names of a group, sorted."""
    return sorted({entry.name for entry in _entries(group, tuple(sys.path))})


def find(group: str, name: str) -> Any:
    """The object of this name, or at this place (`module:attribute`). A `UserError` says why there is none."""
    about = GROUPS[group]
    entries = [entry for entry in _entries(group, tuple(sys.path)) if entry.name == name]
    if len(entries) > 1:
        origins = " and ".join(sorted(f"{entry.value} (package {_package(entry)})" for entry in entries))
        raise about.error(
            f"{about.setting} = {name!r}: the name is registered twice, by {origins}; rename or uninstall one of them",
            code="name-registered-twice",
        )
    if not entries and (":" not in name or group == "spaces"):
        known = names(group)
        hint = nearest(name, known) if known else "no package registers any; install Atoll again"
        raise about.error(f"{about.setting} = {name!r}: unknown; {hint}", code=f"unknown-{about.word}")
    place = entries[0].value if entries else name
    module, _, attribute = (part.strip() for part in place.partition(":"))
    found = _imported(about, name, module)
    for part in filter(None, attribute.split(".")):
        if not hasattr(found, part):
            hint = "it was defined in a script or notebook: continue there" if module == "__main__" else "correct it"
            raise about.error(
                f"{about.setting} = {name!r}: module {module} has no {part}; {hint}", code="plugin-lacks-member"
            )
        found = getattr(found, part)
    missing = [member for member in about.members if not hasattr(found, member)]
    missing += sorted(getattr(found, "__abstractmethods__", ()))
    if missing:
        raise about.error(
            f"{about.setting} = {name!r}: {place} has no `{missing[0]}`; a {about.word} needs it, "
            "see docs/extending.md",
            code="plugin-lacks-member",
        )
    return found


def name_of(group: str, found: Any) -> str:
    """The registered name of a class or function, or else its place: what `find` takes."""
    about = GROUPS[group]
    place = f"{found.__module__}:{found.__qualname__}"
    if "<locals>" in place:
        raise about.error(
            f"{place}: defined inside a function, where it cannot be found by name; define it at the top of a module",
            code="plugin-not-at-top",
        )
    registered = [entry.name for entry in _entries(group, tuple(sys.path)) if entry.value == place]
    return registered[0] if registered else place


@cache
def _entries(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of a group in the packages on this path."""
    return tuple(entry_points(group=f"atoll.{group}"))


def _package(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown"


def _imported(about: Group, name: str, module: str) -> Any:
    try:
        return import_module(module)
    except AtollError:
        raise
    except (Exception, SystemExit) as problem:  # a plug-in is foreign code: whatever it raises is one line
        reason = " ".join(f"{type(problem).__name__}: {problem}".split())
        raise about.error(
            f"{about.setting} = {name!r}: module {module} cannot be imported ({reason}); install it, or correct it",
            code="plugin-not-importable",
        ) from problem
