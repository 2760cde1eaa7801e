"""The replies that a method folds: good ones are streamed, bad ones are counted and named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from atoll.core.messages import REJECTED, Reply
from atoll.errors import TooFewReplies


class Replies:
    """The good replies to some tasks, as they stream; the bad ones are gathered in `failures`.

    After the iteration `enough` says whether the good ones are the `least` number that their exchange needs. If they
    are not, or fewer than `minimum`, that is `TooFewReplies`. Its text says how many of the clients returned `what`,
    and why the others did not. With a `minimum` of 0 nothing raises: the caller looks at `enough`.
    """

    def __init__(
        self,
        replies: Iterable[Reply],
        clients: int,
        minimum: int = 1,
        what: str = "a usable reply",
        least: Callable[[int], int] = lambda asked: 0,
        asked: int | None = None,
    ) -> None:
        """`asked`: the number of tasks, without test evaluations; None: of those that are over."""
        self._replies, self._clients, self._minimum, self._what = replies, clients, minimum, what
        self._least, self._asked = least, asked
        self.failures: list[Reply] = []
        self.enough = True

    def __iter__(self) -> Iterator[Reply]:
        good = counted = over = unasked = 0
        for reply in self._replies:
            charged = not reply.task.test_evaluation
            over += charged and reply.asked
            unasked += charged and not reply.asked
            if reply.ok:
                good += 1
                counted += charged
                yield reply
            else:
                self.failures.append(reply)
        least = self._least(over if self._asked is None else self._asked - unasked)
        self.enough = counted >= least
        if self._minimum and (good < self._minimum or not self.enough):
            found = f"{good or 'none'} of {self._clients} clients returned {self._what}"
            most = max(self._minimum, least)
            needed = f", {most} are needed" if most > 1 else ""
            raise TooFewReplies(f"{found}{needed} ({self.reasons})", code="too-few-replies")

    @property
    def reasons(self) -> str:
        """Why replies failed, the most frequent reason first, for one line of text."""
        return failure_reasons([reply.error for reply in self.failures])


def failure_reasons(errors: Sequence[str | None]) -> str:
    """Errors of replies, the most frequent first, for one line of text."""
    ranked = sorted(Counter(error for error in errors if error).items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count} x {error}" for error, count in ranked[:2]) or "no replies"


def mostly_nonfinite(errors: Sequence[str | None], asked: int) -> bool:
    """Whether most of those asked returned values that are not finite: what they were sent has diverged. Not what
    clients say of themselves counts, but the rule that refused their replies."""
    return 2 * sum(error is not None and error.startswith(f"{REJECTED}nonfinite") for error in errors) > asked
