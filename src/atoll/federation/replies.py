"""The replies that a method folds: good ones are streamed, bad ones are counted and named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from atoll.core.messages import Reply
from atoll.errors import TooFewReplies


class Replies:
    """The good replies to some tasks, as they stream; the bad ones are gathered in `failures`.

    Fewer good replies than `minimum` are `TooFewReplies`, raised once at the end of the iteration. Its text says how
    many of the clients returned `what`, and why the others did not.
    """

    def __init__(self, replies: Iterable[Reply], clients: int, minimum: int = 1, what: str = "a usable reply") -> None:
        self._replies, self._clients, self._minimum, self._what = replies, clients, minimum, what
        self.failures: list[Reply] = []

    def __iter__(self) -> Iterator[Reply]:
        good = 0
        for reply in self._replies:
            if reply.ok:
                good += 1
                yield reply
            else:
                self.failures.append(reply)
        if good < self._minimum:
            found = f"{good or 'none'} of {self._clients} clients returned {self._what}"
            needed = f", {self._minimum} are needed" if self._minimum > 1 else ""
            raise TooFewReplies(f"{found}{needed} ({self.reasons})", code="too-few-replies")

    @property
    def reasons(self) -> str:
        """Why replies failed, the most frequent reason first, for one line of text."""
        return failure_reasons([reply.error for reply in self.failures])


def failure_reasons(errors: Sequence[str | None]) -> str:
    """Errors of replies, the most frequent first, for one line of text."""
    ranked = sorted(Counter(error for error in errors if error).items(), key=lambda item: (-item[1], item[0]))
    return "; ".join(f"{count} x {error}" for error, count in ranked[:2]) or "no replies"
