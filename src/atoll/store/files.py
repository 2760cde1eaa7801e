"""Files that are either the old ones or the new ones, never half of each."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Write aside, flush to the disk, rename, flush the folder: the rename is the one instant of change."""
    aside = path.with_name(f".{path.name}.new")
    with open(aside, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(aside, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in this folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep_asides(folder: Path) -> None:
    """Remove what an interrupted `replace_file` left behind."""
    for path in folder.iterdir():
        if is_aside(path):
            path.unlink(missing_ok=True)


def is_aside(path: Path) -> bool:
    """Whether a file is one that `replace_file` writes before it renames it."""
    return path.name.startswith(".") and path.name.endswith(".new")
