"""A run directory, open for writing by one process."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from atoll.errors import RunDamaged, RunDirectoryError
from atoll.preparation.value import Preparation
from atoll.store.checkpoints import Checkpoints
from atoll.store.files import is_temporary, read_file, remove_temporary_files, replace_file, sync_folder
from atoll.store.integrity import (
    DESCRIBING,
    changed_files,
    checked_lines,
    digests_of,
    json_bytes,
    line,
    listed_files,
    sealed,
    unsealed,
)
from atoll.store.lock import Lock, lock_run
from atoll.store.models import Model, save_model

SCHEMA = 3  # of the files of a run directory; the manifest, the result and the pointers carry it
EVENTS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
RECONFIGURED = "reconfigured.json"
RETAINED_SNAPSHOTS = 8  # model files of this many snapshots remain, because a reader may be about to open them
INCOMPLETE_START = {
    "lock",
    "manifest.json",
    "preparation.json",
    "privacy.jsonl",
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
        self._events = os.fdopen(os.open(path / "events.jsonl", EVENTS, 0o666), "ab")
        sync_folder(path)  # the names of the log and the folders, too, survive a loss of power
        self._sum = ""  # of the last event
        self._snapshot_files = [self._earlier_snapshots()]

    @classmethod
    def create(
        cls, path: Path, config: str, manifest: Mapping[str, Any], preparation: Preparation, empty: Sequence[str] = ()
    ) -> RunDirectory:
        """A new run. The folder must be missing or empty: no existing file is ever overwritten. The `empty` files are
        there whenever the run can be resumed."""
        try:
            _refuse_links(path)
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
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
            for name in empty:
                replace_file(path / name, b"")
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
        _refuse_links(path)
        return cls(path, lock_run(path))

    def reconfigure(self, config: str) -> None:
        """Replace the settings of the run, for this process and for later ones."""
        # First: a process that is killed between the two must not find a change that no one has asked for.
        digest = hashlib.sha256(config.encode()).hexdigest()
        replace_file(self.path / RECONFIGURED, _json(sealed({"config.toml": digest})))
        replace_file(self.path / "config.toml", config.encode())

    def refuse_changes(self) -> None:
        """A run continues with the files that it was started with, and from its own checkpoints."""
        found = self.checkpoints.read()
        if found is None:
            if os.fstat(self._events.fileno()).st_size:
                raise RunDirectoryError(
                    f"{self.path}: its checkpoints are missing, although it has events; restore the folder "
                    "checkpoints, or begin again from the first round with --accept-changes",
                    code="checkpoints-missing",
                )
            return
        changed = changed_files(self.path, found[1].get("files", {}), reconfigured(self.path))
        if changed:
            raise RunDirectoryError(
                f"{self.path}: {listed_files(changed)} changed or removed since the last checkpoint; restore the file, "
                "or continue all the same with --accept-changes",
                code="file-changed",
            )

    def event(self, event: Mapping[str, Any]) -> None:
        """Append one line. It is durable after the next checkpoint."""
        text, self._sum = line(event, self._sum)
        self._events.write(text)
        self._events.flush()

    def events(self) -> list[dict[str, Any]]:
        """The events so far."""
        file = self.path / "events.jsonl"
        return checked_lines(read_file(file), file)[0]

    def checkpoint(self, number: int, value: Mapping[str, Any]) -> None:
        """Save a checkpoint together with the current length of the event log."""
        os.fsync(self._events.fileno())
        length = os.fstat(self._events.fileno()).st_size
        self.checkpoints.write(number, {"events": length, "value": dict(value), "files": digests_of(self.path)})

    def last_checkpoint(self) -> dict[str, Any] | None:
        """The newest intact checkpoint. Later events are removed from the log, because they will be repeated."""
        found = self.checkpoints.read()
        if found is None:
            self._events.truncate(0)
            self._sum = ""
            return None
        _, saved = found
        if os.fstat(self._events.fileno()).st_size < saved["events"]:
            raise RunDamaged(
                f"{self.path}: events.jsonl is shorter than its checkpoint states; start the run again from scratch",
                code="events-too-short",
            )
        self._events.truncate(saved["events"])
        file = self.path / "events.jsonl"
        self._sum = checked_lines(read_file(file), file)[1]
        value: dict[str, Any] = saved["value"]
        return value

    def snapshots(self, models: Mapping[str, Model], round_number: int) -> None:
        """Publish models under their picks. The pointer file is replaced atomically."""
        names = {pick: save_model(self.path / "models", model) for pick, model in models.items()}
        pointer = {"schema": SCHEMA, "round": round_number, "models": names}
        replace_file(self.path / "models" / "current.json", _json(sealed(pointer)))
        self._snapshot_files.append(set(names.values()))
        if len(self._snapshot_files) > RETAINED_SNAPSHOTS:
            retained = set().union(*self._snapshot_files[-RETAINED_SNAPSHOTS:])
            for old in self._snapshot_files.pop(0) - retained:
                (self.path / "models" / old).unlink(missing_ok=True)

    def _earlier_snapshots(self) -> set[str]:
        """Snapshots of the run before it was resumed; they are removed like any other snapshot."""
        result = self.path / "result.json"
        try:
            final = {c["weights"] for c in json.loads(read_file(result))["candidates"]} if result.exists() else set()
        except (ValueError, KeyError, TypeError, RecursionError):
            raise RunDamaged(
                f"{result}: it cannot be read; remove it, and `atoll resume` writes it again", code="file-damaged"
            ) from None
        return {
            file.name for file in (self.path / "models").glob("*.safetensors") if f"models/{file.name}" not in final
        }

    def save_model(self, model: Model) -> str:
        """Write a model that is never removed, and return its path relative to the run directory."""
        return f"models/{save_model(self.path / 'models', model)}"

    def result(self, result: Mapping[str, Any]) -> None:
        digests = {**digests_of(self.path), "events.jsonl": self._sum}
        replace_file(self.path / "result.json", _json(sealed({"schema": SCHEMA, **result, "digests": digests})))

    def discard(self) -> None:
        """Remove the run's files, and its folder if that is empty then, unless there is a checkpoint of a round."""
        saved = self.checkpoints.read()
        if saved is None or saved[0] == 0:
            for name in ("models", "checkpoints", "journal"):
                shutil.rmtree(self.path / name, ignore_errors=True)
            for name in (*DESCRIBING, "events.jsonl", "lock"):
                (self.path / name).unlink()
            (self.path / "privacy.jsonl").unlink(missing_ok=True)
            with suppress(OSError):
                self.path.rmdir()

    def close(self) -> None:
        try:
            self._events.close()  # writes what a full disk has refused before
        finally:
            self._lock.release()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def reconfigured(path: Path) -> dict[str, str]:
    """The digest of settings that Atoll itself has replaced, if it has."""
    try:
        found: dict[str, str] = unsealed(json.loads(read_file(path / RECONFIGURED)), path / RECONFIGURED)
        return found
    except FileNotFoundError:
        return {}
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise RunDamaged(f"{path / RECONFIGURED}: it cannot be read; remove it", code="file-damaged") from None


def _refuse_links(path: Path) -> None:
    """Nothing is written through a symbolic link in place of a run directory, of one of its folders or of a file that
    grows, or to a pipe or device in place of the log. Other files are replaced, and with them a link."""
    log = path / "events.jsonl"
    if log.exists() and not log.is_symlink() and not log.is_file():
        raise RunDamaged(f"{log}: it is no ordinary file; restore it from a copy", code="file-unreadable")
    names = ("models", "checkpoints", "journal", "events.jsonl", "privacy.jsonl")
    for place in (path, *(path / name for name in names), *(path / "journal").glob("*.journal")):
        if place.is_symlink():
            raise RunDirectoryError(
                f"{place}: it is a symbolic link, which a run does not write through; name the folder itself",
                code="run-is-a-link",
            )


def _refuse_used(path: Path) -> None:
    found = {entry.name for entry in path.iterdir() if not is_temporary(entry)}
    if found - INCOMPLETE_START:
        hint = f"continue with `atoll resume {path}` or" if "config.toml" in found else "it holds other files;"
        raise RunDirectoryError(
            f"{path}: already in use; {hint} choose another folder with --out", code="folder-not-empty"
        )


def _json(value: Mapping[str, Any]) -> bytes:
    return json_bytes(value, indent=1) + b"\n"
