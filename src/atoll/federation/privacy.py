"""Under `[privacy]`: every task of a client is made private and charged to its account before it is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from atoll.core.messages import Task
from atoll.federation.transport import work_digest
from atoll.privacy.account import PrivacyAccount

if TYPE_CHECKING:
    from atoll.clients.coverage import Coverage


class PrivacyGuard:
    """Stands before the tasks of all clients; holders of a public test set have none."""

    def __init__(self, account: PrivacyAccount, coverage: Coverage, not_covered: Sequence[str] = ()) -> None:
        self.account = account
        self.not_covered = not_covered  # what is outside of the account, in words
        self._coverage = coverage
        self._reported: set[tuple[str, str]] = set()

    def admit(self, task: Task, round_number: int, number: int) -> tuple[Task, str | None]:
        """The task as it is sent, and the reason why it is not, if its client cannot afford it."""
        if task.client not in self.account.clients:
            return task, None
        covered, releases = self._coverage.cover(task)
        key = (round_number, task.client, number, work_digest(covered.job, covered.payload))
        return covered, self.account.charge(key, releases)

    def newly_spent(self, number: int) -> dict[str, str]:
        """The clients whose budget was found to be spent in this round, and for which rows; each is named once."""
        found = {}
        for client, parts in self.account.spent_parts.items():
            new = [part for part, since in parts.items() if since == number and (client, part) not in self._reported]
            self._reported.update((client, part) for part in new)
            if new:
                found[client] = f"its privacy budget is spent for {' and '.join(new)} rows"
        return found
