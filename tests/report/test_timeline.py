"""Timelines of runs on a virtual network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import ConfigError
from atoll.report.figures.catalogue import draw_figures
from atoll.report.figures.timeline import CLIENTS, draw_timeline, latencies, spans
from atoll.run.reader import Run, load
from made_runs import manifest
from refusals import refused

ROUNDS: list[dict[str, Any]] = [
    {"from": 0.0, "to": 5.0, "tasks": [["ann", 1, 0, 1, 2, 5, "used"], ["bob", 1, 0, None, None, 5, "failed"]]},
    {"from": 5.0, "to": 9.0, "tasks": [["cid", 1, 0, 3, 4, 8, "late"], ["ann", 2, 5, 6, 7, 9, "used"]]},
]


def made(folder: Path, rounds: list[dict[str, Any] | None]) -> Run:
    folder.mkdir()
    (folder / "config.toml").write_text('method = "fedavg"\n[fedavg]\n')
    (folder / "manifest.json").write_text(manifest("fedavg"))
    events = [
        {"round": number, "metrics": {"error": 0.5}} | ({} if network is None else {"simulation": network})
        for number, network in enumerate(rounds, 1)
    ]
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return load(folder)


def test_latency_is_of_the_round_in_which_a_task_was_sent(tmp_path: Path) -> None:
    run = made(tmp_path / "run", ROUNDS)
    assert latencies(run) == {1: (8, 6.5), 2: (4, 4)}
    assert [(span.round, span.start, span.end, len(span.steps)) for span in spans(run)] == [(1, 0, 5, 2), (2, 5, 9, 2)]


def test_figures_are_drawn_of_runs_on_a_network_only(tmp_path: Path) -> None:
    run, plain = made(tmp_path / "run", ROUNDS), made(tmp_path / "plain", [None, None])
    names = sorted(path.name for path in draw_figures([run.path]))
    assert names == ["latency.png", "rounds.png", "timeline.png"]
    assert [path.name for path in draw_figures([plain.path])] == ["rounds.png"]
    both = draw_figures([run.path, made(tmp_path / "other", ROUNDS).path], out=tmp_path / "both", file_format="svg")
    assert sorted(path.name for path in both) == ["latency.svg", "rounds.svg", "timeline.svg"]
    timeline = (tmp_path / "both" / "timeline.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {name}, rounds 1 to 2 -->" in timeline for name in ("run", "other"))


def test_what_the_timeline_shows(tmp_path: Path) -> None:
    figure = draw_timeline({"run": made(tmp_path / "run", ROUNDS)}, tmp_path / "timeline.svg").read_text(
        encoding="utf-8"
    )
    shown = [
        word
        for word in ("ann", "bob", "cid", "late", "no reply", "rejected", "round 2")
        if f"<!-- {word} -->" in figure
    ]
    assert shown == ["ann", "bob", "cid", "late", "no reply", "round 2"]


def test_the_account_of_each_client_is_beside_its_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 8 and 2 replies the mean is 5: 1.6 and 0.4 of a fair share."""
    run = made(tmp_path / "run", ROUNDS)
    accounts = {"ann": {"asked": 9, "used": 8, "idle": 0}, "cid": {"asked": 4, "used": 1, "late": 1, "idle": 0}}
    monkeypatch.setattr(Run, "clients", accounts)
    figure = draw_timeline({"run": run}, tmp_path / "timeline.svg").read_text(encoding="utf-8")
    assert all(f"<!-- {text} -->" in figure for text in ("8 of 9, 1.60", "2 of 4, 0.40", "0 of 0"))


def test_what_a_mix_held_back_was_on_the_line_no_longer_for_that(tmp_path: Path) -> None:
    rounds = [ROUNDS[0], {"from": 5.0, "to": 9.0, "tasks": [["cid", 1, 0, 3, 4, 4.5, "late", 8]]}]
    run = made(tmp_path / "run", rounds)
    assert latencies(run) == {1: (5, 4.75)}
    assert spans(run)[1].steps[0].end == 8
    figure = draw_timeline({"run": run}, tmp_path / "timeline.svg").read_text(encoding="utf-8")
    assert "<!-- held back by the staleness mix -->" in figure


def test_many_clients_are_cut_and_that_is_said(tmp_path: Path) -> None:
    tasks = [[f"client-{number:02}", 1, 0, 1, 2, 3, "used"] for number in range(CLIENTS + 7)]
    run = made(tmp_path / "run", [{"from": 0.0, "to": 3.0, "tasks": tasks}])
    assert "and 7 more clients" in draw_timeline({"run": run}, tmp_path / "timeline.svg").read_text(encoding="utf-8")


def test_nothing_to_draw(tmp_path: Path) -> None:
    still = made(tmp_path / "still", [{"from": 0.0, "to": 0.0, "tasks": [["ann", 1, 0, 0, 0, 0, "used"]]}])
    with refused(ConfigError, "nothing-to-draw"):
        draw_timeline({"still": still}, tmp_path / "timeline.png")
    assert [path.name for path in draw_figures([still.path])] == ["rounds.png"]
