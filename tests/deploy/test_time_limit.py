"""Work that may take so long and no longer."""

from __future__ import annotations

import threading

import pytest

from atoll.deploy.site import TookTooLong, within


def test_what_the_work_returns_or_raises_is_returned_or_raised() -> None:
    assert within(60, lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        within(60, lambda: 1 // 0)


def test_none_is_a_result_too() -> None:
    def nothing() -> None:
        return None

    within(60, nothing)


def test_a_program_that_wants_to_end_is_heard() -> None:
    def leave() -> None:
        raise SystemExit("enough")

    with pytest.raises(SystemExit, match="enough"):
        within(60, leave)


def test_work_that_does_not_end_is_left_to_itself() -> None:
    end = threading.Event()
    with pytest.raises(TookTooLong):
        within(0.05, end.wait)
    end.set()
