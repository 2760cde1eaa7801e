"""A site's own account: what was released of its rows in all runs, on its disk before anything leaves.

    privacy.jsonl   a line before a task is done: run, order, digest of the work, split of the rows, releases;
                    a line before its reply leaves: run, order, digest;
                    a line for what leaves once before a run (rows per class, sums for the scaling): what it is, its
                    noise, its numbers, split, releases

It does not rely on the server's account, nor on its good will: the limit is the site's, and what is released is
computed from the task itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from atoll.core.messages import PARTS
from atoll.privacy.accountant import Budget, Events, Release, Spent, of_part, sum_epsilon, summed
from atoll.privacy.records import Records
from atoll.privacy.settings import LEAST_NOISE

FILE = "privacy.jsonl"


class Work(NamedTuple):
    """A task, by its content."""

    run: str
    order: int
    work: str  # a digest


class SiteAccount:
    """What was released of one site's rows. Rows are training or validation rows by a `split`; runs of one seed and
    data table have theirs in common."""

    def __init__(self, folder: Path, epsilon: float | None = None, delta: float = 1e-5) -> None:
        self._records = Records(folder / FILE)
        self._budget = None if epsilon is None else Budget(epsilon, delta)
        self._spent: dict[str, Spent] = {}  # split -> what was released
        self._drawn: dict[tuple[str, str, float], list[float]] = {}
        self.charged: set[Work] = set()  # nothing of these has left, unless they are answered, too
        self.answered: set[Work] = set()
        for line in self._records.lines:
            work = Work(line["run"], line["order"], line["work"]) if "work" in line else None
            if "releases" in line:
                self._add(line["split"], [Release(*own) for own in line["releases"]])
            if "once" in line:
                self._drawn[line["once"], line["split"], line["noise"]] = line["numbers"]
            elif work is not None:
                (self.charged if "releases" in line else self.answered).add(work)

    def charge(self, work: Work, split: str, releases: Sequence[Release]) -> str | None:
        """Write that this task will be done; instead the reason if it is more than the site's limit allows."""
        if work in self.charged:
            return None
        refusal = self._refusal(split, releases)
        if refusal is None:
            self._write({**work._asdict(), "split": split, "releases": list(releases)})
            self.charged.add(work)
            self._add(split, releases)
        return refusal

    def answer(self, work: Work) -> None:
        """Write that the reply of this task is about to leave."""
        self._write(work._asdict())
        self.answered.add(work)

    def once(self, what: str, split: str, noise: float, draw: Callable[[], list[float]]) -> list[float] | str:
        """Numbers about training rows with this noise, or why they stay here. They are drawn once: asked again, they
        are the same."""
        place = what, split, noise
        if place not in self._drawn:
            releases = [Release("train", noise)]
            refusal = self._refusal(split, releases)
            if refusal is not None:
                return refusal
            found = draw()
            self._write({"once": what, "noise": noise, "numbers": found, "split": split, "releases": releases})
            self._drawn[place] = found
            self._add(split, releases)
        return self._drawn[place]

    def epsilon(self, delta: float) -> float:
        """The most that was spent of any row."""
        split = next(reversed(self._spent), "")
        return max(sum_epsilon(events, delta) for events in self._sums(split, []))

    def close(self) -> None:
        self._records.close()

    def _refusal(self, split: str, releases: Sequence[Release]) -> str | None:
        if any(not release.noise >= LEAST_NOISE for release in releases):
            return f"noise below {LEAST_NOISE:g} times what one row can change"
        budget = self._budget
        if budget is None or all(map(budget.allows, self._sums(split, releases))):
            return None
        after = max(sum_epsilon(events, budget.delta) for events in self._sums(split, releases))
        limit = f"limits.epsilon = {budget.epsilon:g} at limits.delta = {budget.delta:g}"
        return f"privacy budget spent: with this task all runs would have spent epsilon {after:.3g}, {limit}"

    def _sums(self, split: str, releases: Sequence[Release]) -> list[Events]:
        """What a row of each part is in at most. Of another split it may have been in either part: all of that counts,
        whatever the part."""
        own = summed(self._spent.get(split, {}), releases)
        found: list[Events] = []
        for part in PARTS:
            events: dict[tuple[float, float], int] = of_part(own, part)
            for other in (spent for name, spent in self._spent.items() if name != split):
                for (_, noise, rate), count in other.items():
                    events[noise, rate] = events.get((noise, rate), 0) + count
            found.append(events)
        return found

    def _add(self, split: str, releases: Sequence[Release]) -> None:
        self._spent[split] = summed(self._spent.get(split, {}), releases)

    def _write(self, line: dict[str, Any]) -> None:
        """What is in memory follows the disk: if this fails, the account is as before, and nothing leaves."""
        self._records.add(line)
        self._records.flush()
