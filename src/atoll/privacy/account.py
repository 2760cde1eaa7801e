"""The account of every client: what was released of its rows, on the disk before anything leaves.

    privacy.jsonl   one line per task: round, client, number, digest of the work, and its releases;
                    one line where a budget was found to be spent: round, client, and the part of its rows

A task that is done again after a kill is the same work, with the same noise, and gives the same bits: it is no second
release and is charged once. Work with another payload has other noise, and is charged again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atoll.core.messages import Part
from atoll.errors import RunDamaged
from atoll.privacy.accountant import Release, Spent, epsilon_of, part_epsilon
from atoll.privacy.settings import PrivacySettings
from atoll.store.files import sync_folder

FILE = "privacy.jsonl"
Key = tuple[int, str, int, str]  # round, client, number of the task in the round, digest of the work


class PrivacyAccount:
    """What was released of each client's rows. Without a folder nothing is written."""

    def __init__(self, settings: PrivacySettings, clients: Sequence[str], folder: Path | None = None) -> None:
        self.settings = settings
        self.clients = list(clients)
        self.spent_parts: dict[str, dict[Part, int]] = {}  # client -> part whose budget is spent -> since which round
        self._charged: set[Key] = set()
        self._spent: dict[str, dict[tuple[Part, float, float], int]] = {name: {} for name in clients}
        self._within: list[dict[tuple[float, float], int]] = []  # spending of one part that is within the budget
        self._unwritten: list[str] = []
        self._file: Any = None
        if folder is not None:
            path = folder / FILE
            for line in _lines(path):
                if "spent" in line:
                    self.spent_parts.setdefault(line["client"], {})[line["spent"]] = line["round"]
                    continue
                key = (line["round"], line["client"], line["number"], line["work"])
                self._add(key, [Release(*own) for own in line["releases"]])
            self._file = open(path, "ab")  # noqa: SIM115 (open while the run lasts)
            sync_folder(folder)

    def charge(self, key: Key, releases: Sequence[Release]) -> str | None:
        """Charge a task before it is sent; instead the reason if its client cannot afford it. See `flush`.

        The client's budget for these rows is then spent: later tasks on them are refused as well, however small.
        """
        if key in self._charged:
            return None
        number, client = key[:2]
        over = self.spent_parts.get(client, {})
        for part in dict.fromkeys(release.part for release in releases):
            if part not in over and not self._affordable(_sum(self._spent[client], releases), part):
                over = self.spent_parts.setdefault(client, {})
                over[part] = number
                self._write({"round": number, "client": client, "spent": part})
            if part in over:
                return f"privacy budget spent: epsilon {self.settings.epsilon:g} for {part} rows"
        self._add(key, releases)
        self._write({"round": number, "client": client, "number": key[2], "work": key[3], "releases": list(releases)})
        return None

    def _write(self, line: dict[str, Any]) -> None:
        self._unwritten.append(json.dumps(line, separators=(",", ":")))

    def plan(self, releases: Sequence[Release]) -> None:
        """What a client is planned to release: if it is within the budget, accounts below it are not computed one by
        one."""
        for part in dict.fromkeys(release.part for release in releases):
            self._affordable(_sum({}, releases), part)

    def _affordable(self, spent: Spent, part: Part) -> bool:
        own = {(noise, rate): count for (its, noise, rate), count in spent.items() if its == part}
        if any(all(count <= known.get(place, 0) for place, count in own.items()) for known in self._within):
            return True
        if part_epsilon(spent, part, self.settings.delta) > self.settings.epsilon:
            return False
        self._within.append(own)
        return True

    def flush(self) -> None:
        """Write what was charged. When this returns, it is on the disk."""
        if self._file is not None and self._unwritten:
            self._file.write("".join(f"{line}\n" for line in self._unwritten).encode())
            self._file.flush()
            os.fsync(self._file.fileno())
        self._unwritten = []

    def epsilon(self, client: str) -> float:
        """What was spent of this client's budget."""
        return epsilon_of(self._spent[client], self.settings.delta)

    def report(self) -> dict[str, dict[str, Any]]:
        """Each client's epsilon and delta, and which of its budgets are spent since which round."""
        found: dict[str, dict[str, Any]] = {}
        for name in self.clients:
            found[name] = {"epsilon": round(self.epsilon(name), 4), "delta": self.settings.delta}
            if self.spent_parts.get(name):
                found[name]["spent"] = dict(self.spent_parts[name])
        return found

    def all_spent(self, part: Part = "train") -> bool:
        """Whether no client may be asked for work on these rows any more."""
        return bool(self.clients) and all(part in self.spent_parts.get(name, {}) for name in self.clients)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _add(self, key: Key, releases: Sequence[Release]) -> None:
        self._charged.add(key)
        self._spent[key[1]] = _sum(self._spent.get(key[1], {}), releases)


def _sum(spent: Spent, releases: Sequence[Release]) -> dict[tuple[Part, float, float], int]:
    after = dict(spent)
    for release in releases:
        place = release.part, release.noise, release.rate
        after[place] = after.get(place, 0) + release.times
    return after


def _lines(path: Path) -> list[dict[str, Any]]:
    """The lines of the file. One that was being written at a kill is of a task that was not sent: it is cut off."""
    if not path.exists():
        return []
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    try:
        return [json.loads(line) for line in data[:whole].splitlines()]
    except ValueError as problem:
        raise RunDamaged(
            f"{path}: damaged ({problem}); what was spent is not known, so the run cannot be resumed",
            code="privacy-account-damaged",
        ) from None
