"""The ledger adds up; every sum here was done by hand."""

from __future__ import annotations

import json

from atoll.core.ledger import FATES, Account, Ledger


def two_rounds() -> Ledger:
    ledger = Ledger()
    ledger.open_round()
    ledger.sent("anna", 100)
    ledger.sent("ben", 50)
    ledger.received("used", size=30, macs=7, client="anna")
    ledger.received("failed", client="ben", reason="ValueError: 7 rows")
    ledger.elapsed(1.5)
    ledger.open_round()
    ledger.sent("anna", 10)
    ledger.received("late", size=5, macs=7, client="anna")
    ledger.received("rejected", size=2, macs=7, client="anna", reason="rejected, nonfinite: NaN")
    ledger.elapsed(0.25)
    return ledger


def test_sums() -> None:
    total = two_rounds().total()
    assert (total.tasks, total.bytes_down, total.bytes_up, total.client_macs) == (3, 160, 37, 21)
    assert total.replies == {"used": 1, "late": 1, "stale": 0, "rejected": 1, "failed": 1}
    assert total.simulated_seconds == 1.75


def test_rounds_are_kept_apart() -> None:
    first, second = two_rounds().rounds
    assert first == Account(2, {"used": 1, "late": 0, "stale": 0, "rejected": 0, "failed": 1}, 150, 30, 7, 1.5)
    assert (second.tasks, second.bytes_down, second.bytes_up) == (1, 10, 7)


def test_a_late_reply_may_turn_out_stale() -> None:
    ledger = two_rounds()
    ledger.changed_its_mind("anna", "late", "stale")
    assert ledger.total().replies == {"used": 1, "late": 0, "stale": 1, "rejected": 1, "failed": 1}


def test_it_survives_json() -> None:
    ledger = two_rounds()
    again = Ledger()
    again.restore(json.loads(json.dumps(ledger.to_plain())))
    assert again.rounds == ledger.rounds and again.clients == ledger.clients
    again.received("used")
    assert ledger.rounds[1].replies["used"] == 0  # nothing is shared


def test_the_plain_form_is_a_copy() -> None:
    """A checkpoint's value is made before the round that may fail."""
    ledger = two_rounds()
    plain = ledger.to_plain()
    ledger.received("used", size=1)
    assert plain["rounds"][1]["replies"]["used"] == 0 and plain["rounds"][1]["bytes_up"] == 7


def test_each_client_has_an_account() -> None:
    ledger = two_rounds()
    anna, ben = ledger.clients["anna"], ledger.clients["ben"]
    assert (anna.rounds, anna.asked, anna.used, anna.late) == (2, 2, 1, 1) and anna.rejected == {"nonfinite": 1}
    assert (ben.rounds, ben.asked, ben.used) == (1, 1, 0) and ben.failed == {"ValueError: 7 rows": 1}
    assert ben.useless and not anna.useless
    assert ledger.this_round.keys() == {"anna"} and ledger.this_round["anna"].to_plain() == {
        "rounds": 1,
        "asked": 1,
        "late": 1,
        "rejected": {"nonfinite": 1},
    }
    ledger.changed_its_mind("anna", "late", "stale")
    assert (anna.late, anna.stale) == (0, 1)


def test_the_report_has_totals_and_rounds() -> None:
    report = two_rounds().report()
    assert report["rounds"] == 2 and report["tasks"] == 3 and len(report["per_round"]) == 2
    assert sum(row["bytes_up"] for row in report["per_round"]) == report["bytes_up"]
    assert list(report["replies"]) == list(FATES)


def test_an_empty_ledger_opens_its_first_round_by_itself() -> None:
    ledger = Ledger()
    assert ledger.total() == Account()
    ledger.sent("anna", 1)
    assert len(ledger.rounds) == 1
