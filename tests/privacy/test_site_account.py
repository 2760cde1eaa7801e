"""A site's own account: over all runs, charged once for the same task, and enforced."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from atoll.privacy.accountant import Release, sum_epsilon
from atoll.privacy.site_account import SiteAccount, Work

TRAINING = [Release("train", 2.0, 0.1, 20)]
COUNT = [Release("validation", 5.0)]
DELTA = 1e-5


def work(order: int, run: str = "r") -> Work:
    return Work(run, order, "digest")


def test_what_was_charged_survives(tmp_path: Path) -> None:
    account = SiteAccount(tmp_path)
    assert account.charge(work(1), "s", TRAINING) is None
    assert account.charge(work(1), "s", TRAINING) is None  # nothing of it has left
    assert account.charge(work(2), "s", COUNT) is None
    account.answer(work(1))
    again = SiteAccount(tmp_path)  # the first one was killed
    assert again.charged == {work(1), work(2)} and again.answered == {work(1)}
    once = sum_epsilon({(2.0, 0.1): 20}, DELTA)
    assert again.epsilon(DELTA) == account.epsilon(DELTA) == max(once, sum_epsilon({(5.0, 1.0): 1}, DELTA))


def test_of_another_split_all_parts_count(tmp_path: Path) -> None:
    """A row may have been a training row there and be a validation row here."""
    account = SiteAccount(tmp_path)
    account.charge(work(1, "one"), "s", TRAINING)
    account.charge(work(1, "two"), "s", COUNT)
    assert account.epsilon(DELTA) == sum_epsilon({(2.0, 0.1): 20}, DELTA)
    account.charge(work(1, "three"), "t", COUNT)
    assert account.epsilon(DELTA) == sum_epsilon({(2.0, 0.1): 20, (5.0, 1.0): 2}, DELTA)


def test_the_limit_is_over_all_runs(tmp_path: Path) -> None:
    account, done = SiteAccount(tmp_path, 3.0, DELTA), 0
    while (refusal := account.charge(work(done, f"run {done % 2}"), "s", TRAINING)) is None:
        done += 1
        assert done < 100
    assert sum_epsilon({(2.0, 0.1): 20 * done}, DELTA) <= 3.0 < sum_epsilon({(2.0, 0.1): 20 * (done + 1)}, DELTA)
    assert "limits.epsilon = 3" in refusal
    assert account.charge(work(done, "run 0"), "s", COUNT) is None  # other rows
    assert SiteAccount(tmp_path, 3.0, DELTA).charge(work(99), "s", TRAINING) == refusal


@pytest.mark.parametrize("noise", [0.0, 0.01, float("nan"), -1.0])
def test_noise_that_hides_nothing_is_refused(tmp_path: Path, noise: float) -> None:
    refusal = SiteAccount(tmp_path).charge(work(1), "s", [Release("train", noise)])
    assert refusal is not None and "noise below 0.1" in refusal


def test_what_leaves_before_a_run_is_drawn_once(tmp_path: Path) -> None:
    account = SiteAccount(tmp_path, 1.0, DELTA)
    assert account.once("labels", "s", 20.0, lambda: [3, 4]) == [3, 4]
    again = SiteAccount(tmp_path, 1.0, DELTA)
    assert again.once("labels", "s", 20.0, lambda: [9, 9]) == [3, 4]
    assert again.epsilon(DELTA) == sum_epsilon({(20.0, 1.0): 1}, DELTA)
    assert again.once("moments", "s", 20.0, lambda: [0.1, -2.5]) == [0.1, -2.5]
    assert again.epsilon(DELTA) == sum_epsilon({(20.0, 1.0): 2}, DELTA)
    assert SiteAccount(tmp_path).once("moments", "s", 20.0, lambda: [9.0]) == [0.1, -2.5]
    assert "limits.epsilon" in again.once("labels", "s", 2.0, lambda: [9, 9])


def test_what_is_not_on_the_disk_did_not_happen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task, a reply or rows per class that could not be written are not known afterwards: they are no free ones."""
    account = SiteAccount(tmp_path)
    account.charge(work(1), "s", TRAINING)

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "fsync", full)
        for failing in (
            lambda: account.charge(work(2), "s", TRAINING),
            lambda: account.answer(work(1)),
            lambda: account.once("labels", "s", 20.0, lambda: [3, 4]),
        ):
            with pytest.raises(OSError, match="No space left"):
                failing()
    assert account.charged == {work(1)} and not account.answered
    assert account.once("labels", "s", 20.0, lambda: [5, 6]) == [5, 6]
    assert account.charge(work(2), "s", TRAINING) is None
    again = SiteAccount(tmp_path)
    assert again.charged == {work(1), work(2)} and again.epsilon(DELTA) == account.epsilon(DELTA)
    assert again.epsilon(DELTA) == sum_epsilon({(2.0, 0.1): 40, (20.0, 1.0): 1}, DELTA)
