"""The account of every client: what was released of its rows, on the disk before anything leaves.

    privacy.jsonl   one line per task: round, client, number, digest of the work, and its releases;
                    one line where a budget was found to be spent: round, client, and the part of its rows

A task that is done again after a kill is the same work, with the same noise, and gives the same bits: it is no second
release and is charged once. Work with another payload has other noise, and is charged again.
"""

from __future__ import annotations

from collections.abc import Sequence
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

    def __init__(self, settings: PrivacySettings, clients: Sequence[str], folder: Path | None = None) -> None:
        self.settings = settings
        self.clients = list(clients)
        self.spent_parts: dict[str, dict[Part, int]] = {}  # client -> part whose budget is spent -> since which round
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

        The client's budget for these rows is then spent: later tasks on them are refused as well, however small.
        """
        if key in self._charged:
            return None
        number, client = key[:2]
        over = self.spent_parts.get(client, {})
        for part in dict.fromkeys(release.part for release in releases):
            if part not in over and not self._budget.allows(of_part(summed(self._spent[client], releases), part)):
                over = self.spent_parts.setdefault(client, {})
                over[part] = number
                self.records.add({"round": number, "client": client, "spent": part})
            if part in over:
                return f"privacy budget spent: epsilon {self.settings.epsilon:g} for {part} rows"
        self._add(key, releases)
        place = {"round": number, "client": client, "number": key[2], "work": key[3]}
        self.records.add({**place, "releases": list(releases)})
        return None

    def plan(self, releases: Sequence[Release]) -> None:
        """What a client is planned to release: if it is within the budget, accounts below it are not computed one by
        one."""
        for part in dict.fromkeys(release.part for release in releases):
            self._budget.allows(of_part(summed({}, releases), part))

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
            name: round(max(sum_epsilon(of_part(spent, part), delta, coarse=True) for part, _, _ in spent), 3)
            for name, spent in active.items()
            if kinds[name] in shown
        }

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

    def _add(self, key: Key, releases: Sequence[Release]) -> None:
        self._charged.add(key)
        self._spent[key[1]] = summed(self._spent.get(key[1], {}), releases)
