"""Benchmarks fit the code that they measure, and `make bench` can run them all."""

from __future__ import annotations

import sys

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
