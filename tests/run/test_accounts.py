"""What is said about clients and networks: computed by hand from accounts."""

from __future__ import annotations

from typing import Any

from atoll.core.ledger import OTHER, REASONS, ClientAccount
from atoll.run.accounts import (
    account_of,
    client_problems,
    clients_so_far,
    constant_answer,
    fair_shares,
    network_problems,
)


def test_accounts_add_up_over_rounds_and_attempts() -> None:
    """Round 2 was tried twice: its last event holds both attempts."""
    events: list[dict[str, Any]] = [
        {"round": 1, "clients": {"anna": {"rounds": 1, "asked": 2, "used": 2}}},
        {"round": 2, "failed": "too few", "clients": {"ben": {"rounds": 1, "asked": 1, "failed": {"gone": 1}}}},
        {"round": 2, "clients": {"ben": {"rounds": 1, "asked": 3, "used": 1, "failed": {"gone": 2}}}},
        {"round": 3, "clients": {"ben": {"rounds": 1, "asked": 1, "late": 1, "rejected": {"nonfinite": 1}}}},
    ]
    assert clients_so_far(events) == {
        "anna": {"rounds": 1, "asked": 2, "used": 2, "idle": 2},
        "ben": {
            "rounds": 2,
            "asked": 4,
            "used": 1,
            "late": 1,
            "failed": {"gone": 2},
            "rejected": {"nonfinite": 1},
            "idle": 1,
        },
    }


def test_a_client_cannot_fill_its_account_with_reasons() -> None:
    own = ClientAccount()
    for number in range(3 * REASONS):
        own.count("failed", f"error {number}")
    assert len(own.failed) == REASONS + 1 and own.failed[OTHER] == 2 * REASONS


def test_clients_that_never_took_part_come_first_with_their_reason() -> None:
    error = "ValueError: all rows are of one class; leave it out (_update_job, line 334)"
    found = client_problems(
        {
            "anna": {"asked": 9, "used": 9, "idle": 0},
            "ben": {"asked": 9, "used": 8, "rejected": {"nonfinite": 1}, "idle": 0},
            "cleo": {
                "asked": 9,
                "used": 6,
                "rejected": {"nonfinite": 1},
                "failed": {"no reply": 1, "gone": 1},
                "idle": 0,
            },
            "evil\x1b[2J": {"asked": 4, "used": 0, "failed": {error: 4}, "idle": 5},
            "fay": {"asked": 2, "used": 0, "stale": 2, "idle": 7},
            "gus": {"asked": 0, "used": 0, "idle": 9},
            "hal": {"asked": 3, "used": 0, "rejected": {"norm": 3}, "strikes": 3, "set_aside": 4, "idle": 6},
        }
    )
    assert found == [
        "client 'hal' was set aside in round 4: of 3 tasks 3 were rejected (updates out of all proportion)",
        "client 'evil\\x1b[2J' never took part: of 4 tasks 4 failed (all rows are of one class; leave it out)",
        "client 'fay' never took part: of 2 tasks 2 came too late",
        "client 'gus' was never asked",
        "client 'cleo': of 9 tasks 1 was rejected (values that are not finite), 2 failed (no reply, 1; gone, 1)",
        "client 'ben': of 9 tasks 1 was rejected (values that are not finite)",
    ]


def test_many_clients_that_were_never_asked_are_one_sentence() -> None:
    idle = {"asked": 0, "used": 0, "idle": 3}
    (found,) = client_problems({f"c{number}": idle for number in range(8)})
    assert found == "8 clients were never asked: 'c0', 'c1', 'c2', 'c3', 'c4' and 3 more"


def test_a_network_no_better_than_a_constant_answer_is_said() -> None:
    test = {"test_error": 0.4, "baseline_error": 0.4, "confusion": [[6, 0], [4, 0]]}
    (found,) = network_problems({"test": test}, "knee", ("no", "yes"))
    assert all(word in found for word in ("'knee'", "always answering 'no'", "0.4000"))
    assert network_problems({"test": test | {"test_error": 0.3}}, "knee", ("no", "yes")) == []
    assert network_problems({}, "knee", ("no", "yes")) == []
    assert network_problems({"about": {"stopped": "too early"}}, "final", ()) == ["too early"]
    (untrained,) = network_problems({"test": test, "about": {"trained_rounds": 0}}, "shared", ("no", "yes"))
    assert "was not trained" in untrained and "personal-CLIENT" in untrained


def test_without_a_matrix_the_frequent_class_has_no_name() -> None:
    assert constant_answer({"test_error": 0.5}, ("a", "b")) == "always answering the most frequent class"


def test_clients_that_are_late_too_often_are_named_with_what_helps() -> None:
    """Of 10, 10, 10 and 2 replies the fair share is 8: 2 is less than half of it, 5 would not be."""
    even = {name: {"asked": 10, "used": 10, "idle": 0} for name in ("anna", "ben", "cleo")}
    slow = {"asked": 6, "used": 2, "stale": 4, "idle": 4}
    (text,) = client_problems({**even, "dora": slow})
    assert text.startswith("replies of client 'dora' were used 2 times, less than half of its fair share of 8; ")
    assert "engine.fair = 1" in text and "engine.quorum" in text and "engine.deadline" not in text
    shares = fair_shares({name: account_of(own) for name, own in {**even, "dora": slow}.items()})
    assert shares == {"anna": 1.25, "ben": 1.25, "cleo": 1.25, "dora": 0.25}
    assert client_problems({**even, "dora": {**slow, "used": 5, "stale": 1}}) == []
    assert client_problems({**even, "dora": {"asked": 2, "used": 2, "idle": 8}}) == [], "it was never late"
    (both,) = client_problems({**even, "dora": slow, "eve": {**slow, "used": 0, "late": 2}})
    assert both.startswith("replies of 2 clients") and "fair share of 7 times: 'dora' 2, 'eve' 2; " in both


def test_clients_that_a_deadline_leaves_out_are_named_with_what_helps() -> None:
    even = {name: {"asked": 10, "used": 10, "idle": 0} for name in ("anna", "ben", "cleo")}
    slow = {"asked": 10, "used": 2, "failed": {"no reply within 4 s": 8}, "idle": 0}
    starved, lost = client_problems({**even, "dora": slow})
    assert "'dora' were used 2 times, less than half of its fair share of 8" in starved
    assert "engine.deadline" in starved and "engine.quorum" not in starved
    assert lost == "client 'dora': of 10 tasks 8 failed (no reply within 4 s)"
    (other,) = client_problems({**even, "dora": {**slow, "failed": {"ValueError: no rows": 8}}})
    assert "fair share" not in other, "it is not slow"
    both = client_problems({**even, "dora": {**slow, "asked": 12, "stale": 2}})[0]
    assert "engine.deadline" in both and "engine.quorum" in both
