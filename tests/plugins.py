"""Packages that register things with Atoll, made for a test: a module and what an installer writes beside it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def install(
    folder: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str, entries: dict[str, dict[str, str]]
) -> None:
    """Put a module and its entry points (group -> name -> place) on the path of this process and its workers."""
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = []
    for group, places in entries.items():
        lines += [f"[atoll.{group}]", *(f"{name} = {place}" for name, place in places.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, module, raising=False)
