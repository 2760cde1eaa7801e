"""How files of a run directory show that they are as Atoll wrote them.

- A JSON document (`result.json`, `models/current.json`) has a `digest` of all its other fields.
- Every line of `events.jsonl` ends with a `sum` over itself and the sum before it, so that changed, lost and moved
  lines are noticed.
- Checkpoints and the result hold the digests of the files that describe the run (`DESCRIBING`).

Digests are no signatures: who changes a file and recomputes them is not noticed. Files of earlier versions have none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.core import wire
from atoll.errors import RunDamaged
from atoll.store.files import read_file

DESCRIBING = ("config.toml", "manifest.json", "preparation.json")
SUM = b',"sum":"'


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its digest."""
    return {**value, "digest": _digest(value)}


def unsealed(value: dict[str, Any], place: Path) -> dict[str, Any]:
    """The document without its digest; `RunDamaged` if it is not the right one."""
    content = {name: item for name, item in value.items() if name != "digest"}
    if "digest" in value and value["digest"] != _digest(content):
        raise RunDamaged(
            f"{place}: the content does not match its digest; the file was changed or damaged: restore it, or remove "
            f"it and write it again with `atoll resume`",
            code="wrong-checksum",
        )
    return content


def line(event: Mapping[str, Any], previous: str) -> tuple[bytes, str]:
    """A line of the event log, and its sum."""
    body = json_bytes(event, separators=(",", ":"))
    own = _sum(body, previous)
    return body[:-1] + SUM + own.encode() + b'"}\n', own


def json_bytes(value: Mapping[str, Any], **form: Any) -> bytes:
    """JSON that is easy to read. Halves of surrogate pairs, which file names that are not UTF-8 have, are escaped."""
    return json.dumps(value, ensure_ascii=False, **form).encode(errors="backslashreplace")


def checked_lines(data: bytes, place: Path) -> tuple[list[dict[str, Any]], str]:
    """The events of a log without their sums, and the last sum. An incomplete last line is left out."""
    events: list[dict[str, Any]] = []
    previous = ""
    for number, text in enumerate(data.split(b"\n")[:-1], start=1):
        head, found, tail = text.rpartition(SUM)
        body = head + b"}" if found else text
        problem = "it has no sum, the line before it has" if previous and not found else ""
        if found and tail != _sum(body, previous).encode() + b'"}':
            problem = "its sum is wrong"
        try:
            event = json.loads(body)
        except (ValueError, RecursionError) as fault:
            problem = problem or str(fault)
        if problem or not isinstance(event, dict):
            why = problem or "not a table"
            raise RunDamaged(
                f"{place}: line {number} was changed or damaged ({why}); restore the file from a copy",
                code="file-damaged",
            )
        events.append(event)
        previous = tail[:-2].decode() if found else ""
    return events, previous


def digests_of(folder: Path) -> dict[str, str]:
    """The digests of the files that describe a run, as far as they are there."""
    found = {name: folder / name for name in DESCRIBING}
    return {name: file_digest(path) for name, path in found.items() if path.is_file()}


def file_digest(path: Path) -> str:
    return hashlib.sha256(read_file(path)).hexdigest()


def changed_files(folder: Path, recorded: Mapping[str, str], accepted: Mapping[str, str]) -> list[str]:
    """The files that are neither as recorded nor as accepted since then."""
    now = digests_of(folder)
    return [name for name, digest in recorded.items() if now.get(name) not in (digest, accepted.get(name, digest))]


def listed_files(names: Sequence[str]) -> str:
    return f"{', '.join(names)} {'was' if len(names) == 1 else 'were'}"


def _digest(value: Mapping[str, Any]) -> str:
    # Over the JSON: a tuple or a number as a key has another form after reading.
    plain = json.loads(json.dumps(value))
    return hashlib.sha256(wire.canonical(plain).encode()).hexdigest()[:32]


def _sum(body: bytes, previous: str) -> str:
    return hashlib.blake2b(previous.encode() + body, digest_size=8).hexdigest()
