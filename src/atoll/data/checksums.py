"""Is a data file what it claims to be?

Known files are compared with their published checksum. For others the rule is trust on first use: once a file has
passed its reader's structural checks its sha256 is written beside it, and from then on it must not change.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from atoll.errors import DataError


def file_digest(path: Path, algorithm: str) -> str:
    """The hexadecimal digest of a file. md5 is there because that is what some publishers give."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()


def verify(path: Path, known: str | None) -> None:
    """Compare with `known` ("sha256:..." or "md5:..."), or with what was recorded beside the file earlier."""
    record = _record(path)
    source = "its published checksum"
    if known is None and record.exists():
        known = f"sha256:{record.read_text(encoding='utf-8').partition(' ')[0].strip()}"
        source = f"recorded in '{record.name}'"
    if known is None:
        return
    algorithm, _, wanted = known.partition(":")
    found = file_digest(path, algorithm)
    if found != wanted:
        raise DataError(
            f"'{path}' has {algorithm} {found}, not {wanted} ({source}): it is damaged or another version; "
            "put the original file there",
            code="wrong-checksum",
        )


def remember(path: Path, known: str | None) -> None:
    """Record the checksum of a file that read well, unless it is published. A read-only folder is left as it is."""
    record = _record(path)
    if known is None and not record.exists():
        with suppress(OSError):
            record.write_text(f"{file_digest(path, 'sha256')}  {path.name}\n", encoding="utf-8")


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")
