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


def filled(rounds: int) -> Ledger:
    ledger = Ledger()
    for number in range(rounds):
        ledger.open_round()
        ledger.sent("a", number)
        ledger.received("used", 1, 2, "a")
        ledger.elapsed(0.1)
    return ledger


def test_what_a_checkpoint_writes_does_not_grow_with_the_rounds() -> None:
    short, long = (len(json.dumps(filled(rounds).without_rounds(rounds))) for rounds in (10, 99))
    assert long - short < 10  # some numbers have more digits
    assert filled(5).without_rounds(5)["before"] == [] and len(filled(5).without_rounds(4)["before"]) == 1


def test_rounds_come_back_from_elsewhere_and_the_total_is_the_same() -> None:
    """0.1 seconds a round: the sums are the same bits, because they are added in the same order."""
    ledger, again, old = filled(7), Ledger(), Ledger()
    assert ledger.total().tasks == 7 and ledger.total().bytes_down == 21
    assert ledger.total().simulated_seconds == sum([0.1] * 7)
    again.restore(ledger.without_rounds(6), ledger.to_plain()["rounds"][1:])
    old.restore(ledger.to_plain())  # as checkpoints of earlier versions have it
    for other in (again, old):
        assert other.to_plain() == ledger.to_plain() and other.total() == ledger.total()
    for one in (ledger, again, old):
        one.open_round()
        one.elapsed(0.1)
    assert again.total() == old.total() == ledger.total()
