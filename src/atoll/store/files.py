"""Atomic replacement of files."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file atomically and durably: write a temporary file, flush it, rename it, flush the folder."""
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    with open(temporary, "xb") as file:  # a new file: a symbolic link that someone put there is not followed
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make renames and removals in this folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def remove_temporary_files(folder: Path) -> None:
    """Remove the temporary files of interrupted calls of `replace_file`."""
    for path in folder.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Whether this is a temporary file of `replace_file`."""
    return path.name.startswith(".") and path.name.endswith(".new")
