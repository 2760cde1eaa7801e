"""Benchmarks fit the code that they measure, and `make bench` can run them all."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from atoll.methods.realtime import Realtime
from scripts import ROOT, script


def test_the_real_time_benchmark_overrides_what_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    own = {name for name, value in vars(script("benchmarks/realtime.py").Noting).items() if callable(value)}
    assert own > {"__init__"} and own <= set(dir(Realtime))


def test_without_an_earlier_version_there_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["versions.py"])
    script("benchmarks/versions.py").main()
    assert capsys.readouterr().out.count("\n") == 1


def test_an_exchange_begins_when_no_task_is_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    overhead = script("benchmarks/overhead.py")
    looking = overhead.Looking(tmp_path)
    for name, node, created, seen in (
        ("a", 1, 1.0, 5.0),  # round 1: two tasks at once, and a third before the second is answered
        ("b", 1, 1.1, 9.0),
        ("c", 2, 6.0, 8.0),
        ("d", 2, 10.0, 11.0),  # round 2: one after the other
        ("e", 1, 12.0, 13.0),
    ):
        looking.sent[name], looking.replied[name] = (node, created, ""), (seen - 0.5, seen)
    done = {1: [4.4, 8.4, 12.4], 2: [7.4, 10.4]}
    log = {
        node: [
            {"message": "task", "round": number, "at": datetime.fromtimestamp(at, UTC).isoformat()}
            for number, at in zip(rounds, done[node], strict=True)
        ]
        for node, rounds in ((1, "112"), (2, "12"))
    }
    assert looking.exchanges(log) == {"1": 1, "2": 2}
    del looking.replied["a"]  # fetched between two looks
    assert looking.exchanges(log) == {"1": 1, "2": 2}
    exchanges = overhead.by_exchanges({"2": 7.0, "3": 9.0, "4": 20.0}, {"2": 2, "3": 2, "4": 3})
    assert overhead.in_words(exchanges) == "2 in 2: 8.00 s, 3 in 1: 20.00 s"
    there = overhead.Measured(8.0, 19.61, 4.0, exchanges)
    row = overhead.row_of("realtime", there, overhead.Measured(1.3), None)
    assert row.count("|") == len(overhead.COLUMNS) + 1 and "at most 12 s with 2: met (8.00 s) |" in row
    assert "2 in 2 of the rounds, 3 in 1 of the rounds | 8.00 s (1.300 s) | 19.6 s | 4.0 |" in row
