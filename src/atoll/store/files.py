"""Atomic replacement of files, and reading what may have been put in their place."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from atoll.errors import RunDamaged


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


def read_file(path: Path) -> bytes:
    """The content of a file of a run directory; see `open_file`."""
    try:
        with open_file(path) as file:
            return file.read()
    except MemoryError:
        raise _unreadable(path, "it does not fit into this machine's memory") from None


def open_file(path: Path) -> BinaryIO:
    """A file of a run directory, open for reading. What is no ordinary file, such as a pipe without a writer, or
    may not be read is `RunDamaged`; what is missing is a `FileNotFoundError`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise _unreadable(path, problem.strerror or str(problem)) from None
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _unreadable(path, "it is no ordinary file")
    return os.fdopen(handle, "rb")


def _unreadable(path: Path, why: str) -> RunDamaged:
    return RunDamaged(f"{path}: cannot be read ({why}); restore it from a copy", code="file-unreadable")


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
