"""Downloads of published data files: resumed after an interruption, verified, and moved into place atomically."""

from __future__ import annotations

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from atoll.data.published import PUBLISHED, file_digest
from atoll.errors import DataError, nearest

Progress = Callable[[str, int, int | None], None]  # file, bytes so far, total bytes if the server reports them
BLOCK = 1 << 16
ATTEMPTS = 5  # without a new byte, before giving up
SECONDS = 30.0  # without an answer
PAUSE = 0.5  # seconds before the next attempt, times the number of failed attempts


def fetch(name: str, folder: str | Path, base: str | None = None, progress: Progress | None = None) -> list[Path]:
    """Download a data set's files into `folder/name`; files that are there and intact are skipped.

    `base` is the address of a mirror. An interrupted download stays in a `.part` file and is resumed, in this call or
    in a later one.
    """
    if name not in PUBLISHED:
        raise DataError(
            f"data set '{name}' cannot be fetched; {nearest(name, PUBLISHED)}", code="dataset-not-fetchable"
        )
    source = PUBLISHED[name]
    place = Path(folder).expanduser() / name
    try:
        place.mkdir(parents=True, exist_ok=True)
        return [
            _fetch_file(f"{(base or source.base).rstrip('/')}/{file}", place / file, known, progress)
            for file, known in source.files.items()
        ]
    except OSError as error:
        raise DataError(
            f"cannot write to '{place}' ({error.strerror or error}); name another folder", code="folder-not-writable"
        ) from None


def _fetch_file(address: str, target: Path, known: str, progress: Progress | None) -> Path:
    algorithm, _, wanted = known.partition(":")
    if target.exists() and file_digest(target, algorithm) == wanted:
        return target
    part = target.with_name(f"{target.name}.part")
    _complete(address, part, progress)
    found = file_digest(part, algorithm)
    if found != wanted:
        part.unlink()
        raise DataError(
            f"{address} has {algorithm} {found}, not the published {wanted}; the download was deleted: try again, "
            f"or put the right file at '{target}' yourself",
            code="wrong-checksum",
        )
    os.replace(part, target)
    return target


def _complete(address: str, part: Path, progress: Progress | None) -> None:
    """Download to the end, resuming after each interruption."""
    idle = 0
    while True:
        before = part.stat().st_size if part.exists() else 0
        try:
            if _continue(address, part, before, progress):
                return
            problem = "the connection was interrupted"
        except urllib.error.HTTPError as error:
            if error.code == 416 and before:
                # There is nothing after these bytes: the file is complete, or of another version; the checksum decides.
                return
            raise DataError(
                f"{address} answered {error.code} {error.reason}; check the address or try later",
                code="download-refused",
            ) from None
        except (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
        grown = part.exists() and part.stat().st_size > before
        idle = 0 if grown else idle + 1
        if idle >= ATTEMPTS:
            raise DataError(
                f"{address} cannot be downloaded ({problem}); the received part is saved, run the command again",
                code="download-interrupted",
            )
        time.sleep(PAUSE * idle)


def _continue(address: str, part: Path, have: int, progress: Progress | None) -> bool:
    """One request for the missing bytes. True if the server sent as many as it announced."""
    request = urllib.request.Request(address, headers={"Range": f"bytes={have}-"} if have else {})
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        if answer.status != 206:
            have = 0  # the server ignores ranges and sends the whole file
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length is not None else None
        with part.open("ab" if have else "wb") as file:
            while block := answer.read1(BLOCK):
                file.write(block)
                have += len(block)
                if progress is not None:
                    progress(part.name.removesuffix(".part"), have, total)
    return total is None or have >= total
