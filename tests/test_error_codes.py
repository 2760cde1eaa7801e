"""Every error of Atoll has a short code in kebab case."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import atoll
from atoll import errors

SOURCE = Path(atoll.__file__).parent
KEBAB = re.compile(r"[a-z0-9]+(-[a-z0-9]+){1,3}")  # two to four words
FILES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(SOURCE.rglob("*.py"))}


def parents() -> dict[str, str]:
    """Class -> base class, for all error classes of the package."""
    found = {"AtollError": ""}
    classes = [node for tree in FILES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    while more := {
        node.name: name(base)
        for node in classes
        for base in node.bases
        if node.name not in found and name(base) in found
    }:
        found |= more
    return found


def name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


PARENTS = parents()


def uses() -> Iterator[tuple[str, str, ast.expr | None]]:
    """The place, class and code expression of every error that is created."""
    for path, tree in FILES.items():
        for node in ast.walk(tree):
            place = f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 0)}"
            if isinstance(node, ast.Call) and name(node.func) in PARENTS:
                given = {keyword.arg: keyword.value for keyword in node.keywords}
                yield place, name(node.func), given.get("code")
            elif isinstance(node, ast.Raise) and node.exc is not None and name(node.exc) in PARENTS:
                yield place, name(node.exc), None


def test_the_error_classes_are_found() -> None:
    known = {key for key, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
    assert known <= PARENTS.keys()


def test_every_error_has_a_code() -> None:
    """The code is a literal, or a variable where a function passes on a code."""
    wrong = []
    for place, kind, code in uses():
        literal = isinstance(code, ast.Constant) and isinstance(code.value, str) and KEBAB.fullmatch(code.value)
        if not literal and not isinstance(code, (ast.Name, ast.Attribute)):
            wrong.append(f"{place} {kind} {'without a code' if code is None else ast.unparse(code)}")
    assert not wrong, "\n".join(wrong)
