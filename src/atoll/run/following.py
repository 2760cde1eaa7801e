"""Following the event log of a run: each look reads only what was appended since the last one."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atoll.errors import RunDamaged
from atoll.store.files import open_file

CHUNK = 1 << 20  # bytes that one look reads at most: parsed events take many times their size
LONGEST = 1 << 28  # bytes of a line


@dataclass(frozen=True)
class Appended:
    """What a look has found. After a `restart` the events are those from the first round on."""

    events: list[dict[str, Any]] = field(default_factory=list)
    restart: bool = False
    more: bool = False  # the log holds more than one look reads: look again at once


class EventFollower:
    """Reads `events.jsonl` as it grows.

    A resumed run cuts the log back to its last checkpoint and appends again. The follower notices it by the length of
    the file, or by its last line, which is compared at every look that finds the file changed.
    """

    def __init__(self, run: Path) -> None:
        self._path = run / "events.jsonl"
        self._seen = (-1, -1, -1)  # file, size and time of change at the last look
        self._offset = 0  # of the first byte that is not read yet; always the beginning of a line
        self._last = b""  # the line before it

    def look(self) -> Appended:
        """The events that were appended since the last look. An incomplete last line is left for the next one.

        `RunDamaged` if a line is not an event; the follower stays before it.
        """
        try:
            with open_file(self._path) as file:
                about = os.fstat(file.fileno())
                now = (about.st_ino, about.st_size, about.st_mtime_ns)
                if now == self._seen and about.st_size == self._offset:
                    return Appended()
                restart = self._offset > 0 and self._was_cut(file, about.st_size)
                if restart:
                    self._offset, self._last = 0, b""
                file.seek(self._offset)
                text = file.read(CHUNK)
                while b"\n" not in text and len(text) and (longer := file.read(CHUNK)):
                    text += longer
                    if len(text) > LONGEST:
                        raise RunDamaged(f"{self._path}: a line has no end", code="file-damaged")
        except FileNotFoundError:
            restart = self._offset > 0
            self._offset, self._last = 0, b""
            return Appended(restart=restart)
        complete = text[: text.rfind(b"\n") + 1]
        events = [self._event(line) for line in complete.splitlines()]
        if complete:
            self._offset += len(complete)
            self._last = complete[complete.rfind(b"\n", 0, len(complete) - 1) + 1 :]
        self._seen = now
        return Appended(events, restart, more=self._offset < about.st_size and bool(complete))

    def _was_cut(self, file: Any, size: int) -> bool:
        if size < self._offset:
            return True
        file.seek(self._offset - len(self._last))
        return bool(file.read(len(self._last)) != self._last)

    def _event(self, line: bytes) -> dict[str, Any]:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError) as problem:
            raise RunDamaged(f"{self._path}: a line cannot be read ({problem})", code="file-damaged") from None
        if not isinstance(event, dict) or not isinstance(event.get("round"), int):
            raise RunDamaged(f"{self._path}: a line is not the event of a round", code="file-damaged")
        return event
