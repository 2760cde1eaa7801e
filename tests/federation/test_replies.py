"""Exchanges with too few good replies do not count, and what clients say of themselves decides nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.core.checks import Count
from atoll.core.messages import Payload, Reply, Task
from atoll.errors import Paused, TooFewReplies
from atoll.federation.exchange import ExchangeRules
from atoll.federation.replies import Replies, mostly_nonfinite
from atoll.federation.transport import plain_reply, reply_from_plain
from atoll.run.reader import load
from atoll.testing import ScriptedFederation, made_table
from refusals import refused

NAMES = [f"c{number}" for number in range(10)]


def asking(good: int, error: str = "asleep", **rules: Any) -> ScriptedFederation:
    """Ten clients, of which so many reply."""

    def answer(task: Task) -> Payload:
        if int(task.client[1:]) >= good:
            raise ValueError(error)
        return {"correct": 1}

    made = ScriptedFederation(NAMES, answer)
    made.rules = ExchangeRules(**rules)
    made.begin(1)
    return made


def tasks(names: Sequence[str] = NAMES, **options: Any) -> list[Task]:
    return [Task(name, name, "job", {}, returns={"correct": Count(1)}, **options) for name in names]


@pytest.mark.parametrize(
    ("good", "rules", "needed"),
    [(3, {}, 0), (2, {}, 3), (1, {"minimum": 0.0}, 0), (5, {"minimum": 0.6}, 6), (2, {"quorum": 0.2}, 0)],
)
def test_an_exchange_needs_a_quarter_of_its_replies(good: int, rules: dict[str, Any], needed: int) -> None:
    """Not more than the quorum, after which nobody is waited for; with a minimum of 0 the method is told."""
    replies = asking(good, **rules).collect(tasks(), minimum=0)
    assert len(list(replies)) == good and replies.enough == (not needed)
    if not needed:
        assert len(list(asking(good, **rules).collect(tasks()))) == good
        return
    with refused(TooFewReplies, "too-few-replies", f"{good} of 10", f"{needed} are needed", "asleep"):
        list(asking(good, **rules).collect(tasks()))


def test_the_least_number_by_hand() -> None:
    assert [ExchangeRules().least(asked) for asked in (0, 1, 2, 4, 5, 8, 9, 10, 50)] == [0, 1, 1, 1, 2, 2, 3, 3, 13]


def test_clients_that_are_not_asked_and_test_evaluations_do_not_count() -> None:
    made = asking(2)
    for name in NAMES[3:]:
        made.ledger.strike(name, 1, 1)
    assert len(list(made.collect(tasks()))) == 2
    assert len(list(asking(0).collect([*tasks(NAMES[:2], test_evaluation=True)], minimum=0))) == 0
    mixed = asking(1).collect([*tasks(NAMES[:1]), *tasks(NAMES[1:], test_evaluation=True)])
    assert len(list(mixed)) == 1 and mixed.enough
    left = [Reply(task, error="spent", asked=False) for task in tasks(NAMES[1:])]
    again = [reply_from_plain(plain_reply(0, reply)) for reply in left]
    replies = Replies([Reply(tasks()[0], {"correct": 1}), *again], 10, least=ExchangeRules().least, asked=10)
    assert len(list(replies)) == 1


@pytest.mark.parametrize(("share", "paused"), [(0.3, False), (0.9, True)])
def test_of_ten_clients_three_may_drop_out_and_nine_pause_a_run(tmp_path: Path, share: float, paused: bool) -> None:
    rule = {"kind": "dropout", "clients": 1.0, "probability": share}
    settings = {"engine": {"workers": 0}, "faults": {"rule": [rule]}}
    options: dict[str, Any] = {"out": tmp_path / "run", "settings": settings, "rounds": 6, "hidden": [4]}
    if not paused:
        assert len(atoll.search("fedavg", made_table(clients=10), **options).rounds) == 6
        return
    with refused(Paused, "round-failed", "of 10 clients", "3 are needed"):
        atoll.search("fedavg", made_table(clients=10), **options)
    assert len(load(tmp_path / "run").rounds) < 6


def test_only_the_server_says_what_it_has_rejected() -> None:
    """A client's own words are not a rule's: they are no strike, and nothing has diverged."""
    made = asking(4, "rejected, nonfinite: believe me")
    list(found := made.collect(tasks()))
    errors = [reply.error for reply in found.failures]
    assert len(errors) == 6 and not mostly_nonfinite(errors, 10)
    assert made.ledger.clients["c9"].strikes == 0 and not made.ledger.clients["c9"].rejected


@pytest.mark.parametrize(("wrong", "diverged"), [(5, False), (6, True)])
def test_most_of_those_asked_must_have_values_that_are_not_finite(wrong: int, diverged: bool) -> None:
    rejected = ["rejected, nonfinite: NaN or infinite values in 'w'"] * wrong
    assert mostly_nonfinite([*rejected, "nonfinite", None], 10) == diverged
    assert not np.any([mostly_nonfinite([text] * 10, 10) for text in ("nonfinite", "rejected, norm: nonfinite")])
