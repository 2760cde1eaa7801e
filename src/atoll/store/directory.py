"""A run directory, open for writing by one process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from atoll.errors import RunDamaged, RunDirectoryError
from atoll.preparation.value import Preparation
from atoll.store.checkpoints import Checkpoints
from atoll.store.files import is_temporary, remove_temporary_files, replace_file
from atoll.store.lock import Lock, lock_run
from atoll.store.models import Model, save_model

SCHEMA = 3  # of the files of a run directory; the manifest, the result and the pointers carry it
RETAINED_SNAPSHOTS = 8  # model files of this many snapshots remain, because a reader may be about to open them
INCOMPLETE_START = {
    "lock",
    "manifest.json",
    "preparation.json",
}  # the files of a run that was killed before config.toml was written


class RunDirectory:
    """Writes events, checkpoints, models and the result. Use `create` or `reopen`; `close` releases the lock."""

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path = path
        self._lock = lock
        remove_temporary_files(path)
        (path / "models").mkdir(exist_ok=True)
        remove_temporary_files(path / "models")
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._events = open(path / "events.jsonl", "ab")  # noqa: SIM115 (open until `close`)
        self._snapshot_files = [self._earlier_snapshots()]

    @classmethod
    def create(cls, path: Path, config: str, manifest: Mapping[str, Any], preparation: Preparation) -> RunDirectory:
        """A new run. The folder must be missing or empty: no existing file is ever overwritten."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_used(path)
            lock = lock_run(path)
        except (OSError, ValueError) as problem:  # ValueError: not a valid file name
            reason = getattr(problem, "strerror", None) or str(problem)
            raise RunDirectoryError(
                f"{path}: {reason}; choose a writable folder with --out", code="folder-not-writable"
            ) from problem
        try:
            _refuse_used(path)  # again: another process may have used it before the lock was taken
            replace_file(path / "preparation.json", _json(preparation.plain()))
            replace_file(path / "manifest.json", _json(manifest))
            replace_file(path / "config.toml", config.encode())  # last: its presence marks a run that can be resumed
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def reopen(cls, path: Path) -> RunDirectory:
        """An existing run, to be resumed."""
        if not (path / "config.toml").is_file():
            raise RunDirectoryError(
                f"{path}: not a run directory (it has no config.toml); see `atoll run --help`",
                code="not-a-run-directory",
            )
        return cls(path, lock_run(path))

    def reconfigure(self, config: str) -> None:
        """Replace the settings of the run, for this process and for later ones."""
        replace_file(self.path / "config.toml", config.encode())

    def event(self, event: Mapping[str, Any]) -> None:
        """Append one line. It is durable after the next checkpoint."""
        self._events.write(json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        self._events.flush()

    def checkpoint(self, number: int, value: Mapping[str, Any]) -> None:
        """Save a checkpoint together with the current length of the event log."""
        os.fsync(self._events.fileno())
        length = os.fstat(self._events.fileno()).st_size
        self.checkpoints.write(number, {"events": length, "value": dict(value)})

    def last_checkpoint(self) -> dict[str, Any] | None:
        """The newest intact checkpoint. Later events are removed from the log, because they will be repeated."""
        found = self.checkpoints.read()
        if found is None:
            self._events.truncate(0)
            return None
        _, saved = found
        if os.fstat(self._events.fileno()).st_size < saved["events"]:
            raise RunDamaged(
                f"{self.path}: events.jsonl is shorter than its checkpoint states; start the run again from scratch",
                code="events-too-short",
            )
        self._events.truncate(saved["events"])
        value: dict[str, Any] = saved["value"]
        return value

    def snapshots(self, models: Mapping[str, Model], round_number: int) -> None:
        """Publish models under their picks. The pointer file is replaced atomically."""
        names = {pick: save_model(self.path / "models", model) for pick, model in models.items()}
        pointer = {"schema": SCHEMA, "round": round_number, "models": names}
        replace_file(self.path / "models" / "current.json", _json(pointer))
        self._snapshot_files.append(set(names.values()))
        if len(self._snapshot_files) > RETAINED_SNAPSHOTS:
            retained = set().union(*self._snapshot_files[-RETAINED_SNAPSHOTS:])
            for old in self._snapshot_files.pop(0) - retained:
                (self.path / "models" / old).unlink(missing_ok=True)

    def _earlier_snapshots(self) -> set[str]:
        """Snapshots of the run before it was resumed; they are removed like any other snapshot."""
        result = self.path / "result.json"
        final = {c["weights"] for c in json.loads(result.read_bytes())["candidates"]} if result.exists() else set()
        return {
            file.name for file in (self.path / "models").glob("*.safetensors") if f"models/{file.name}" not in final
        }

    def save_model(self, model: Model) -> str:
        """Write a model that is never removed, and return its path relative to the run directory."""
        return f"models/{save_model(self.path / 'models', model)}"

    def result(self, result: Mapping[str, Any]) -> None:
        replace_file(self.path / "result.json", _json({"schema": SCHEMA, **result}))

    def discard(self) -> None:
        """Remove the run's files, and its folder if that is empty then, unless there is a checkpoint."""
        if self.last_checkpoint() is None:
            for name in ("models", "checkpoints", "journal"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in ("config.toml", "manifest.json", "preparation.json", "events.jsonl", "lock"):
                (self.path / name).unlink()
            with suppress(OSError):
                self.path.rmdir()

    def close(self) -> None:
        self._events.close()
        self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_used(path: Path) -> None:
    found = {entry.name for entry in path.iterdir() if not is_temporary(entry)}
    if found - INCOMPLETE_START:
        hint = f"continue with `atoll resume {path}` or" if "config.toml" in found else "it holds other files;"
        raise RunDirectoryError(
            f"{path}: already in use; {hint} choose another folder with --out", code="folder-not-empty"
        )


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
