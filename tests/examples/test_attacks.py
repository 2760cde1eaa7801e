"""Every kind of fault has a file under `examples/attacks`, which runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from atoll.federation.faults import KINDS
from scripts import ROOT, script

PLACE = ROOT / "examples" / "attacks"
QUICK = ("dropout", "huge")


def test_every_kind_has_its_file() -> None:
    assert {path.stem for path in PLACE.glob("*.py")} == {*KINDS, "compare"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[] if kind in QUICK else pytest.mark.soak) for kind in KINDS]
)
def test_it_shows_what_happens_with_and_without_protection(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two rounds. Replies are rejected where no check may pass the kind."""
    monkeypatch.syspath_prepend(str(PLACE))
    compare = script("examples/attacks/compare.py")
    monkeypatch.setitem(sys.modules, "compare", compare)
    for name, value in {"ROUNDS": 2, "SEEDS": (1,)}.items():
        monkeypatch.setattr(compare, name, value)
    script(f"examples/attacks/{kind}.py")
    title, *lines = capsys.readouterr().out.splitlines()
    assert "20 clients, 2 rounds" in title and [line.split("  ")[1].strip() for line in lines] == [
        "no attack, mean",
        "no attack, robust",
        "attack, mean",
        "attack, robust",
    ]
    rejected = [int(line.rpartition("(")[2].partition(",")[0]) for line in lines]
    assert rejected[:2] == [0, 0] and (rejected[2] > 0) == (kind in ("nan", "huge", "corrupt"))
    assert f'"kind": "{kind}"' in Path(PLACE / f"{kind}.py").read_text()
