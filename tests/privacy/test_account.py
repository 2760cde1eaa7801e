"""The account of clients: on the disk before anything leaves, charged once for the same work, and enforced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from atoll.errors import RunDamaged
from atoll.privacy.account import FILE, PrivacyAccount, rounded_up
from atoll.privacy.accountant import Release, sum_epsilon
from atoll.privacy.settings import PrivacySettings
from refusals import refused

SETTINGS = PrivacySettings(epsilon=3.0, delta=1e-5)
TRAINING = [Release("train", 2.0, 0.1, 20)]
COUNT = [Release("validation", 5.0)]


def opened(folder: Path) -> PrivacyAccount:
    return PrivacyAccount(SETTINGS, ["a", "b"], folder)


def test_what_was_charged_survives(tmp_path: Path) -> None:
    account = opened(tmp_path)
    assert account.charge((1, "a", 0, "x"), TRAINING) is None
    account.records.flush()
    spent = account.epsilon("a")
    again = opened(tmp_path)  # the first one was killed
    assert again.epsilon("a") == spent > 0 and again.epsilon("b") == 0


def test_the_same_work_is_charged_once_and_other_work_again(tmp_path: Path) -> None:
    account = opened(tmp_path)
    account.charge((1, "a", 0, "x"), TRAINING)
    account.records.flush()
    spent = account.epsilon("a")
    again = opened(tmp_path)
    again.charge((1, "a", 0, "x"), TRAINING)
    assert again.epsilon("a") == spent
    again.charge((1, "a", 0, "other weights"), TRAINING)
    assert again.epsilon("a") > spent


def test_a_line_that_was_being_written_is_cut_off(tmp_path: Path) -> None:
    account = opened(tmp_path)
    account.charge((1, "a", 0, "x"), TRAINING)
    account.records.flush()
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole + whole[:20])
    assert opened(tmp_path).epsilon("a") == account.epsilon("a")
    assert (tmp_path / FILE).read_bytes() == whole
    (tmp_path / FILE).write_bytes(b"no account\n")
    with pytest.raises(RunDamaged, match="what was spent is not known"):
        opened(tmp_path)


def spend(account: PrivacyAccount, client: str = "a") -> int:
    """Charge trainings until the budget is spent: in which round that was found."""
    rounds = 0
    while account.charge((rounds, client, 0, "x"), TRAINING) is None:
        rounds += 1
        assert rounds < 100
    account.records.flush()
    return rounds


def test_a_client_with_a_spent_budget_takes_no_further_part(tmp_path: Path) -> None:
    """Whatever part of its rows the budget was spent for; what it sent before may be fetched, and others go on."""
    account = opened(tmp_path)
    rounds = spend(account)
    assert 0 < account.epsilon("a") <= SETTINGS.epsilon
    assert account.spent_parts == {"a": {"train": rounds}}
    assert account.charge((rounds + 1, "a", 0, "y"), [Release("train", 1000.0)]) is not None  # however small
    refusal = account.charge((rounds + 1, "a", 1, "z"), COUNT)  # other rows
    assert refusal == "privacy budget spent: epsilon 3 for train rows"
    assert account.charge((rounds + 1, "a", 2, "upload"), []) is None
    assert account.charge((rounds + 1, "b", 0, "x"), TRAINING) is None
    assert account.spent_parts == {"a": {"train": rounds}}
    assert not account.all_spent()
    spend(account, "b")
    assert account.all_spent()
    assert opened(tmp_path).spent_parts["a"] == {"train": rounds}
    assert account.report()["a"]["spent"] == {"train": rounds}


def test_the_result_is_measured_on_rows_whose_budget_is_left(tmp_path: Path) -> None:
    account = opened(tmp_path)
    rounds = spend(account)
    account.closing = True
    assert account.charge((rounds + 1, "a", 0, "z"), COUNT) is None
    assert account.charge((rounds + 1, "a", 1, "y"), [Release("train", 1000.0)]) is not None


def test_what_measures_the_result_is_held_back() -> None:
    """Of a budget for ten counts two are reserved: the rounds have eight, and two are left for the result."""
    noise = 8.0
    epsilon = sum_epsilon({(noise, 1.0): 10}, 1e-5) * (1 + 1e-9)
    reserved = {"a": [Release("validation", noise, 1.0, 2)]}
    account = PrivacyAccount(PrivacySettings(epsilon=epsilon, delta=1e-5), ["a"], None, reserved)
    counted = [account.charge((n, "a", 0, "x"), [Release("validation", noise)]) is None for n in range(10)]
    assert counted == [True] * 8 + [False] * 2 and account.spent_parts == {"a": {"validation": 8}}
    account = PrivacyAccount(PrivacySettings(epsilon=epsilon, delta=1e-5), ["a"], None, reserved)
    assert all(account.charge((n, "a", 0, "x"), [Release("validation", noise)]) is None for n in range(8))
    account.closing = True
    counted = [account.charge((9, "a", n, "x"), [Release("validation", noise)]) is None for n in range(3)]
    assert counted == [True, True, False]


def test_reported_numbers_are_rounded_up(tmp_path: Path) -> None:
    assert rounded_up(1.00001, 4) == 1.0001 and rounded_up(1.5, 3) == 1.5
    account = opened(tmp_path)
    account.charge((1, "a", 0, "x"), TRAINING)
    exact = account.epsilon("a")
    assert exact <= account.report()["a"]["epsilon"] <= exact + 1e-4
    assert exact <= account.after_round()["a"]


def test_a_line_that_is_taken_out_or_changed_is_noticed(tmp_path: Path) -> None:
    account = opened(tmp_path)
    for number in range(3):
        account.charge((number, "a", 0, "x"), TRAINING)
    account.records.flush()
    position = account.records.position()
    lines = (tmp_path / FILE).read_text().splitlines(keepends=True)
    for changed in (lines[1:], lines[:1] + lines[2:], [lines[0].replace("2.0", "9.0"), *lines[1:]], lines[::-1]):
        (tmp_path / FILE).write_text("".join(changed))
        with refused(RunDamaged, "privacy-account-damaged", FILE):
            opened(tmp_path)
    (tmp_path / FILE).write_text("".join(lines[:2]))  # a checkpoint knows of the third
    with refused(RunDamaged, "privacy-account-damaged", "3 lines", "has 2"):
        opened(tmp_path).records.refuse_missing(position)
    (tmp_path / FILE).write_text("".join(lines))
    opened(tmp_path).records.refuse_missing(position)


def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full after some bytes of a line; later there is space again."""
    account = opened(tmp_path)
    account.charge((1, "a", 0, "x"), TRAINING)
    account.records.flush()
    whole, position = (tmp_path / FILE).read_bytes(), account.records.position()

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    account.charge((2, "a", 0, "x"), TRAINING)
    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space left"):
        disk.setattr(os, "fsync", full)
        account.records.flush()
    assert account.records.position() == position
    account.charge((3, "a", 0, "x"), TRAINING)
    account.records.flush()
    lines = (tmp_path / FILE).read_bytes()
    assert lines.startswith(whole) and lines.count(b"\n") == 2
    opened(tmp_path).records.refuse_missing(account.records.position())
