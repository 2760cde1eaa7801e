"""The account of every client: what was released of its rows, on the disk before anything leaves.

    privacy.jsonl   one line per task: round, client, number, digest of the work, and its releases;
                    one line where a budget was found to be spent: round, client, and the part of its rows

A task that is done again after a kill is the same work, with the same noise, and gives the same bits: it is no second
release and is charged once. Work with another payload has other noise, and is charged again.

A client whose budget is spent for any part of its rows takes no further part in the rounds. What the result will be
measured with is held back until then: see `closing`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.core.messages import Part
from atoll.privacy.accountant import Budget, Release, epsilon_of, of_part, sum_epsilon, summed
from atoll.privacy.records import Records
from atoll.privacy.settings import PrivacySettings

FILE = "privacy.jsonl"
SHOWN = 16  # different accounts that are computed after each round: each takes up to 0.2 s
Key = tuple[int, str, int, str]  # round, client, number of the task in the round, digest of the work


class PrivacyAccount:
    """What was released of each client's rows. Without a folder nothing is written."""

    def __init__(
        self,
        settings: PrivacySettings,
        clients: Sequence[str],
        folder: Path | None = None,
        reserved: Mapping[str, Sequence[Release]] | None = None,
    ) -> None:
        """`reserved`: client -> what its last tasks, which measure the result, will release."""
        self.settings = settings
        self.clients = list(clients)
        self.closing = False  # the rounds are over: clients only measure the result, on rows whose budget allows it
        self.spent_parts: dict[str, dict[Part, int]] = {}  # client -> part whose budget is spent -> since which round
        self._reserved = reserved or {}
        self._charged: set[Key] = set()
        self._spent: dict[str, dict[tuple[Part, float, float], int]] = {name: {} for name in clients}
        self._budget = Budget(settings.epsilon, settings.delta)
        self.records = Records(None if folder is None else folder / FILE)
        for line in self.records.lines:
            if "spent" in line:
                self.spent_parts.setdefault(line["client"], {})[line["spent"]] = line["round"]
                continue
            key = (line["round"], line["client"], line["number"], line["work"])
            self._add(key, [Release(*own) for own in line["releases"]])

    def charge(self, key: Key, releases: Sequence[Release]) -> str | None:
        """Charge a task before it is sent; instead the reason if its client cannot afford it. See `Records.flush`.

        A task that releases nothing, because what it sends was charged before, is always allowed.
        """
        if key in self._charged:
            return None
        part = self._spent_part(key[0], key[1], releases)
        if part is not None:
            return f"privacy budget spent: epsilon {self.settings.epsilon:g} for {part} rows"
        self._add(key, releases)
        place = {"round": key[0], "client": key[1], "number": key[2], "work": key[3]}
        self.records.add({**place, "releases": list(releases)})
        return None

    def _spent_part(self, number: int, client: str, releases: Sequence[Release]) -> Part | None:
        """The part whose spent budget keeps the client from a task; None: it can afford the task."""
        over, parts = self.spent_parts.get(client, {}), {release.part for release in releases}
        if over and parts and not self.closing:
            return next(iter(over))
        held_back = [] if self.closing else self._reserved.get(client, [])
        for part in sorted(parts):
            if part in over:
                return part
            if not self._budget.allows(of_part(summed(self._spent[client], [*releases, *held_back]), part)):
                self.spent_parts.setdefault(client, {})[part] = number
                self.records.add({"round": number, "client": client, "spent": part})
                return part
        return None

    def epsilon(self, client: str) -> float:
        """What was spent of this client's budget."""
        return epsilon_of(self._spent[client], self.settings.delta)

    def after_round(self) -> dict[str, float]:
        """An epsilon of each client that has spent anything, slightly above the exact one. Of many clients with
        different numbers of rows, only those whose rows took part most often: the others have spent less."""
        active = {name: spent for name, spent in self._spent.items() if spent}
        kinds = {name: tuple(sorted(spent.items())) for name, spent in active.items()}
        often = {kind: sum(rate * count for (_, _, rate), count in kind) for kind in kinds.values()}
        shown = set(sorted(often, key=lambda kind: (-often[kind], kind))[:SHOWN])
        delta = self.settings.delta
        return {
            name: rounded_up(max(sum_epsilon(of_part(spent, part), delta, coarse=True) for part, _, _ in spent), 3)
            for name, spent in active.items()
            if kinds[name] in shown
        }

    def report(self) -> dict[str, dict[str, Any]]:
        """Each client's epsilon and delta, and which of its budgets are spent since which round."""
        found: dict[str, dict[str, Any]] = {}
        for name in self.clients:
            found[name] = {"epsilon": rounded_up(self.epsilon(name), 4), "delta": self.settings.delta}
            if self.spent_parts.get(name):
                found[name]["spent"] = dict(self.spent_parts[name])
        return found

    def all_spent(self) -> bool:
        """Whether no client takes part in the rounds any more."""
        return bool(self.clients) and all(self.spent_parts.get(name) for name in self.clients)

    def _add(self, key: Key, releases: Sequence[Release]) -> None:
        self._charged.add(key)
        self._spent[key[1]] = summed(self._spent.get(key[1], {}), releases)


def rounded_up(value: float, digits: int) -> float:
    """What is reported is never less than what was spent."""
    return math.ceil(value * 10.0**digits) / 10.0**digits
