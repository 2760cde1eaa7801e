"""Checkpoints: plain values as JSON, arrays in safetensors packs, verified when read. The last two are retained.

An array that a retained checkpoint already stores is not written again. Each document carries its own digest and those
of the packs it refers to, so that damage is detected and the previous checkpoint is used. A pack is named by its
content, so that writing a checkpoint again never replaces a pack that an older document refers to.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load as load_pack
from safetensors.numpy import save as save_pack

from atoll.core import wire
from atoll.core.messages import Array, content_name
from atoll.errors import RunDamaged, WireError
from atoll.store.files import read_file, remove_temporary_files, replace_file, sync_folder

SCHEMA = 1
RETAINED = 2
DAMAGE: tuple[type[Exception], ...] = (
    RunDamaged,
    WireError,
    SafetensorError,
    OSError,
    ValueError,
    LookupError,
    TypeError,
)
DAMAGE += (AttributeError, RecursionError, MemoryError)  # what reading a damaged checkpoint may raise


class Checkpoints:
    """The checkpoints of one run, in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)
        remove_temporary_files(folder)
        self._documents: dict[str, dict[str, Any]] = {}  # name -> head of each retained document
        self._damaged: set[str] = set()  # names of damaged documents: the next write removes them

    def write(self, number: int, value: dict[str, Any]) -> None:
        """Save `value` (a payload) under this number. It is durable when this returns."""
        parts = wire.take_apart(value)
        arrays: dict[str, Array] = {}
        array_names = [_remember(arrays, content_name(array), array) for array in parts.arrays]
        tensor_names = [_remember(arrays, owner.digest(name), owner[name]) for owner, name in parts.tensors]
        packs = self._packs_holding(arrays)
        fresh = {digest: array for digest, array in arrays.items() if not any(digest in p["holds"] for p in packs)}
        if fresh:
            packs.append(self._write_pack(fresh))
        head = {"schema": SCHEMA, "number": number, "packs": packs}
        body = {"tree": parts.tree, "arrays": array_names, "tensors": tensor_names}
        text = wire.canonical({**head, **body})
        name = f"{number:08d}.json"
        replace_file(self._folder / name, json.dumps({"sha256": _sha256(text.encode()), "text": text}).encode())
        self._documents[name] = head
        self._damaged.discard(name)
        self._tidy()

    def read(self) -> tuple[int, dict[str, Any]] | None:
        """The number and value of the newest intact checkpoint, or None if there is no checkpoint."""
        names = sorted((path.name for path in self._folder.glob("*.json")), reverse=True)
        problems = []
        for name in names:
            try:
                head, value = self._read(name)
            except DAMAGE as problem:
                problems.append(f"{name}: {problem}")
                self._damaged.add(name)
                continue
            self._documents[name] = head
            return head["number"], value
        if problems:
            raise RunDamaged(
                f"{self._folder}: no checkpoint is intact ({'; '.join(problems)}); start the run again from scratch",
                code="no-intact-checkpoint",
            )
        return None

    def _read(self, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        outer = json.loads(read_file(self._folder / name))
        if _sha256(outer["text"].encode()) != outer["sha256"]:
            raise ValueError("its checksum does not match")
        document = json.loads(outer["text"])
        if document["schema"] != SCHEMA:
            raise ValueError(f"it has schema {document['schema']}, this version reads {SCHEMA}")
        held: dict[str, Array] = {}
        for pack in document["packs"]:
            data = read_file(self._folder / pack["file"])
            if _sha256(data) != pack["sha256"]:
                raise ValueError(f"the checksum of {pack['file']} does not match")
            held.update(load_pack(data))
        arrays = [held[digest] for digest in document["arrays"]]
        tensors = [held[digest] for digest in document["tensors"]]
        value = wire.put_together(document["tree"], arrays, tensors, document["tensors"])
        return {key: document[key] for key in ("schema", "number", "packs")}, value

    def _packs_holding(self, wanted: dict[str, Array]) -> list[dict[str, Any]]:
        """Packs of retained documents that hold at least one of these arrays."""
        found: dict[str, dict[str, Any]] = {}
        for head in self._documents.values():
            for pack in head["packs"]:
                if any(digest in wanted for digest in pack["holds"]):
                    found[pack["file"]] = pack
        return list(found.values())

    def _write_pack(self, arrays: dict[str, Array]) -> dict[str, Any]:
        data = save_pack(arrays)
        digest = _sha256(data)
        file = f"{digest[:32]}.safetensors"
        replace_file(self._folder / file, data)
        return {"file": file, "sha256": digest, "holds": sorted(arrays)}

    def _tidy(self) -> None:
        """Remove all but the newest documents and the packs they refer to."""
        found = {path.name for path in self._folder.glob("*.json")}
        names = sorted(found - self._damaged, reverse=True)
        for name in (*names[RETAINED:], *self._damaged):
            (self._folder / name).unlink(missing_ok=True)
            self._documents.pop(name, None)
        self._damaged.clear()
        if not all(name in self._documents for name in names[:RETAINED]):
            return  # an older document was not read in this process: its packs are unknown, so none is removed
        needed = {pack["file"] for head in self._documents.values() for pack in head["packs"]}
        for path in self._folder.glob("*.safetensors"):
            if path.name not in needed:
                path.unlink(missing_ok=True)
        sync_folder(self._folder)


def recorded_digests(folder: Path) -> dict[str, str]:
    """The digests of the files that describe a run, by its newest readable checkpoint. Nothing is removed."""
    for path in sorted(folder.glob("*.json"), reverse=True):
        try:
            found: dict[str, str] = json.loads(json.loads(read_file(path))["text"])["tree"]["files"]
            return dict(found)
        except DAMAGE:
            continue
    return {}


def _remember(arrays: dict[str, Array], digest: str, array: Array) -> str:
    arrays[digest] = array
    return digest


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
