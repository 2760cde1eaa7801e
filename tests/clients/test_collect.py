"""Good replies are streamed, bad ones counted and named, too few raised once."""

from __future__ import annotations

import pytest

from atoll.core.messages import Payload, Task
from atoll.errors import TooFewReplies
from atoll.testing import ScriptedFederation


def answer(task: Task) -> Payload:
    if task.client in ("b", "c"):
        raise ValueError("no rows")
    return {"client": task.client}


TASKS = [Task(f"ask:{name}", name, "any:job", {}) for name in "abcd"]


def test_good_replies_come_in_task_order_and_bad_ones_are_named() -> None:
    replies = ScriptedFederation(list("abcd"), answer).collect(TASKS, minimum=2)
    assert [reply.task.client for reply in replies] == ["a", "d"]
    assert [reply.task.client for reply in replies.failures] == ["b", "c"] and "2 x ValueError" in replies.reasons


def test_too_few_good_replies_are_one_error_after_the_last_reply() -> None:
    replies, received = ScriptedFederation(list("abcd"), answer).collect(TASKS, minimum=3, what="a name"), []
    with pytest.raises(TooFewReplies) as problem:
        for reply in replies:
            received.append(reply.task.client)
    assert received == ["a", "d"] and problem.value.code == "too-few-replies"
    for word in ("2 of 4", "a name", "3", "no rows"):
        assert word in str(problem.value)


def test_without_a_minimum_no_reply_is_no_error() -> None:
    made = ScriptedFederation(["b"], answer)
    assert list(made.collect([TASKS[1]], minimum=0)) == [] and list(made.collect([], minimum=0)) == []
    with pytest.raises(TooFewReplies):
        list(made.collect([]))
