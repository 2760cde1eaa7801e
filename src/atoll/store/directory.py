"""One run's directory, open for writing by one process."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atoll.errors import RunDamaged, RunDirectoryError
from atoll.store.checkpoints import Checkpoints
from atoll.store.files import is_aside, replace_file, sweep_asides
from atoll.store.lock import Lock, lock_run
from atoll.store.models import Model, save_model

SCHEMA = 1
READERS_GRACE = 8  # models that were offered so many times ago may still be read by someone
BEFORE_THE_START = {"lock", "manifest.json"}  # what a run may leave that was killed before it was one


class RunDirectory:
    """Writes events, checkpoints, models and the result. Made by `create` or `reopen`, let go by `close`."""

    def __init__(self, path: Path, lock: Lock) -> None:
        self.path = path
        self._lock = lock
        sweep_asides(path)
        (path / "models").mkdir(exist_ok=True)
        sweep_asides(path / "models")
        self.checkpoints = Checkpoints(path / "checkpoints")
        self._events = open(path / "events.jsonl", "ab")  # noqa: SIM115 (open while the run lasts)
        self._offered = [self._left_over()]

    @classmethod
    def create(cls, path: Path, config: str, manifest: Mapping[str, Any]) -> RunDirectory:
        """A new run. The folder must not exist or be empty, so that nothing is ever overwritten."""
        try:
            path.mkdir(parents=True, exist_ok=True)
            _refuse_used(path)
            lock = lock_run(path)
        except (OSError, ValueError) as problem:  # a ValueError is a name that no file can have
            reason = getattr(problem, "strerror", None) or str(problem)
            raise RunDirectoryError(
                f"{path}: {reason}; choose a folder that you may write to with --out", code="folder-not-writable"
            ) from problem
        try:
            _refuse_used(path)  # again: until the lock was taken, another process may have been here
            replace_file(path / "manifest.json", _json(manifest))
            replace_file(path / "config.toml", config.encode())  # last: a folder with it is a run that can be resumed
            return cls(path, lock)
        except BaseException:
            lock.release()
            raise

    @classmethod
    def reopen(cls, path: Path) -> RunDirectory:
        """An existing run, to go on with it."""
        if not (path / "config.toml").is_file():
            raise RunDirectoryError(
                f"{path}: not a run directory (it has no config.toml); see `atoll run --help`",
                code="not-a-run-directory",
            )
        return cls(path, lock_run(path))

    def reconfigure(self, config: str) -> None:
        """The run shall go on with these settings, now and when it is resumed."""
        replace_file(self.path / "config.toml", config.encode())

    def event(self, event: Mapping[str, Any]) -> None:
        """Append one line; it is durable with the next checkpoint."""
        self._events.write(json.dumps(event, separators=(",", ":"), ensure_ascii=False).encode() + b"\n")
        self._events.flush()

    def checkpoint(self, number: int, value: Mapping[str, Any]) -> None:
        """Save a checkpoint together with how long the event log was at that time."""
        os.fsync(self._events.fileno())
        length = os.fstat(self._events.fileno()).st_size
        self.checkpoints.write(number, {"events": length, "value": dict(value)})

    def last_checkpoint(self) -> dict[str, Any] | None:
        """The newest intact checkpoint; events after it are cut off, because they will happen again."""
        found = self.checkpoints.read()
        if found is None:
            self._events.truncate(0)
            return None
        _, saved = found
        if os.fstat(self._events.fileno()).st_size < saved["events"]:
            raise RunDamaged(
                f"{self.path}: events.jsonl is shorter than its checkpoint says; start anew", code="events-too-short"
            )
        self._events.truncate(saved["events"])
        value: dict[str, Any] = saved["value"]
        return value

    def snapshots(self, models: Mapping[str, Model], round_number: int) -> None:
        """Put models up for readers under their picks; the pointer file changes in one instant."""
        names = {pick: save_model(self.path / "models", model) for pick, model in models.items()}
        pointer = {"schema": SCHEMA, "round": round_number, "models": names}
        replace_file(self.path / "models" / "current.json", _json(pointer))
        self._offered.append(set(names.values()))
        if len(self._offered) > READERS_GRACE:
            keep = set().union(*self._offered[-READERS_GRACE:])
            for old in self._offered.pop(0) - keep:
                (self.path / "models" / old).unlink(missing_ok=True)

    def _left_over(self) -> set[str]:
        """Models that an earlier sitting of this run had on offer; they go like any other offer, in their time."""
        result = self.path / "result.json"
        kept = {c["weights"] for c in json.loads(result.read_bytes())["candidates"]} if result.exists() else set()
        return {file.name for file in (self.path / "models").glob("*.safetensors") if f"models/{file.name}" not in kept}

    def save_model(self, model: Model) -> str:
        """Keep a model for good; the path relative to the run directory."""
        return f"models/{save_model(self.path / 'models', model)}"

    def result(self, result: Mapping[str, Any]) -> None:
        replace_file(self.path / "result.json", _json({"schema": SCHEMA, **result}))

    def discard(self) -> None:
        """Take everything away, if nothing has been done yet."""
        if self.last_checkpoint() is None:
            for name in ("models", "checkpoints"):
                shutil.rmtree(self.path / name)
            for name in ("config.toml", "manifest.json", "events.jsonl"):
                (self.path / name).unlink()

    def close(self) -> None:
        self._events.close()
        self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _refuse_used(path: Path) -> None:
    found = {entry.name for entry in path.iterdir() if not is_aside(entry)}
    if found - BEFORE_THE_START:
        way_out = f"go on with `atoll resume {path}` or" if "config.toml" in found else "it holds other files;"
        raise RunDirectoryError(
            f"{path}: already in use; {way_out} choose another folder with --out", code="folder-not-empty"
        )


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
