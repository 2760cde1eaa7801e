"""Progress in the terminal, and how text and amounts are written."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from atoll.core.ledger import Account
from atoll.report.terminal import LiveProgress, NoProgress, PlainProgress, amount, progress

EVIL = "<script>alert(1)</script>[red]\x1b[2J"


def console(terminal: bool = False) -> Console:
    return Console(file=StringIO(), force_terminal=terminal, width=120, color_system=None)


def shown(screen: Console) -> str:
    assert isinstance(screen.file, StringIO)
    return screen.file.getvalue()


@pytest.mark.parametrize("kind", [LiveProgress, PlainProgress])
def test_progress_tells_round_error_and_bytes(kind: type[LiveProgress] | type[PlainProgress]) -> None:
    screen = console(terminal=kind is LiveProgress)
    bar = kind(screen)
    bar.round_done(1, 3, {"error": 0.25}, Account(bytes_up=1_500_000, bytes_down=999), 1.0)
    bar.round_failed(2, f"all gone {EVIL}", 1, 3)
    bar.round_done(2, 3, {"error": 0.5}, Account(simulated_seconds=1234.4), 2.0)
    bar.round_done(3, 3, {}, Account(simulated_seconds=2.4), 3.0)
    bar.close()
    text = shown(screen)
    assert (
        "round 3/3" in text
        and "2.40 virtual s" in text
        and "round 2 failed (1 of 3): all gone" in text
        and "\x1b[2J" not in text
    )
    if kind is PlainProgress:
        lines = text.splitlines()
        assert lines[0] == "round 1/3  error 0.2500, up 1.5 MB, down 999 B  1 s"
        assert lines[2] == "round 2/3  error 0.5000, up 0 B, down 0 B, 1,234 virtual s  2 s"


def test_the_right_kind_of_progress() -> None:
    assert type(progress(console(), quiet=False)) is PlainProgress
    assert type(progress(console(), quiet=True)) is NoProgress
    live = progress(console(terminal=True), quiet=False)
    assert type(live) is LiveProgress
    live.close()


@pytest.mark.parametrize(
    ("count", "words"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (10**15, "1.0 PB"), (10**19, "10000.0 PB")],
)
def test_amounts(count: int, words: str) -> None:
    assert amount(count) == words
