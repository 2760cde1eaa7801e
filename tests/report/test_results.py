"""What `show` prints of a run: read from runs that were written by hand, so that every number is known."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import atoll
from atoll.cli.app import app
from atoll.errors import RunDirectoryError
from atoll.report.results import plain_run, show_classes, show_clients, show_next, show_run
from atoll.run.reader import Run, load
from made_runs import manifest
from refusals import refused

EVIL = "[red]\x1b[2J"
GOOD = {"test_error": 0.25, "test_f1": 0.7, "test_rows": 12, "baseline_error": 0.5}
GOOD |= {"confusion": [[5, 1, 0], [2, 1, 0], [0, 0, 3]]}
USED = {"rounds": 3, "asked": 6, "used": 6, "idle": 0}

Write = Callable[..., Run]


def entry(name: str, *picks: str, space: str = "fixed", **other: Any) -> dict[str, Any]:
    objectives = {"error": 0.2, "test_error": 0.3, "macs": 1_234_567, "params": 89, "upload_bytes": 356}
    arch = {"space": space, "input": [4]}
    return {"id": name, "architecture": arch, "objectives": objectives, "picks": list(picks), **other}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """`write(method, candidates, clients, classes)`: a finished run."""

    def make(
        method: str,
        candidates: list[dict[str, Any]],
        clients: dict[str, Any] | None = None,
        classes: tuple[str, ...] = ("sit", "stand", "walk"),
        simulated: float = 0.0,
        planned: int = 3,
        stopped: str | None = None,
    ) -> Run:
        folder = tmp_path / "my run"
        folder.mkdir()
        (folder / "config.toml").write_text("")
        (folder / "manifest.json").write_text(manifest(method))
        (folder / "preparation.json").write_text(json.dumps({"classes": classes}))
        ledger = {"bytes_up": 1500, "bytes_down": 2500, "client_macs": 3e9, "simulated_seconds": simulated}
        result = {
            "method": method,
            "rounds": 3,
            "planned_rounds": planned,
            "stopped": stopped,
            "seed": 1,
            "wall_seconds": 4.0,
            "ledger": ledger,
        }
        accounts = {"anna": USED} if clients is None else clients
        (folder / "result.json").write_text(json.dumps({**result, "candidates": candidates, "clients": accounts}))
        return load(folder)

    return make


def screen(show: Callable[..., None], run: Run, *arguments: Any, width: int = 80) -> list[str]:
    """The lines; those with a path may be longer than the screen, because a path must stay whole."""
    console = Console(file=StringIO(), width=width, color_system=None)
    show(console, run, *arguments)
    assert isinstance(console.file, StringIO)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines if str(run.path) not in line), lines
    return lines


def text(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def row(lines: list[str], name: str) -> list[str]:
    return next([word.strip() for word in line.strip("│┃").split("│")] for line in lines if name in line)


# -- a run -----------------------------------------------------------------------------------------------------------


def test_a_run_its_baseline_and_new_clients(write: Write) -> None:
    held_out = {**GOOD, "test_error": 0.375, "clients": {"dora": GOOD, "emil": GOOD}}
    run = write("realtime", [entry("0120", "high", test=GOOD, held_out=held_out), entry("0000")], simulated=12.5)
    lines = screen(show_run, run)
    assert row(lines, "0120") == ["0120", "high", "0.2000", "0.2500", "1.23 M", "89", "356 B"]
    assert row(lines, "0000")[3] == "(0.3000)"  # measured by the search, not as it is handed over
    found = text(lines)
    assert "always answering 'sit': error 0.5000 on 12 test rows" in found
    assert "new clients (dora, emil): error 0.3750 of 'high' on 12 rows (always answering 'sit': 0.5000)" in found
    assert "sent 1.5 kB, received 2.5 kB, computed 3 G MACs; 4 s, 12.5 s on the virtual network" in found
    assert "note:" not in found


def test_pruned_networks_name_the_layer(write: Write) -> None:
    run = write("decnas", [entry("m0"), entry("m1", "final", about={"layer": "conv 2", "unit": "1.0"})])
    assert any("m1" in line and "conv 2" in line for line in screen(show_run, run, width=120))


@pytest.mark.parametrize("width", [60, 80, 200])
def test_tables_fit_whatever_the_names(write: Write, width: int) -> None:
    """A front of ten; forty personal networks of clients with long names and long names of picks."""
    clients = [f"participant_{'x' * 20}_{number}" for number in range(40)]
    own = [entry(f"personal-{name}", f"personal-{name}", owner=name, test=GOOD) for name in clients]
    front = [entry(f"{number}", test=GOOD) for number in range(10)]
    shared = entry("global", "high", "high1", "high2", "knee", "knee1", "global", test=GOOD)
    run = write("nevofed", [shared, *front, *own], dict.fromkeys(clients, USED))
    lines = screen(show_run, run, width=width)
    assert row(lines, "global")[2:4] == ["0.2000", "0.2500"] and "…" not in text(lines)
    assert "and 30 more networks" in text(lines)
    assert "personal" not in row(lines, "global")[1]
    screen(show_clients, run, width=width)


def test_problems_are_said_in_at_most_ten_lines(write: Write) -> None:
    bad = {"rounds": 3, "asked": 3, "used": 0, "failed": {"no reply": 3}, "idle": 0}
    constant = {**GOOD, "test_error": 0.5}
    clients = {f"c{number}": bad for number in range(13)}
    run = write("fedavg", [entry("final", "high", test=constant)], clients)
    found = text(screen(show_run, run))
    assert found.count("note: ") == 10 and "and 4 more notes; see: atoll clients" in found
    assert "client 'c0' never took part: of 3 tasks 3 failed (no reply)" in found
    assert len(run.problems) == 14 and "'high' is no better than always answering 'sit'" in run.problems[-1]


def test_an_unfinished_run_shows_its_state(write: Write) -> None:
    run = write("fedavg", [])
    (run.path / "result.json").unlink()
    account = {"asked": 1, "failed": {"no reply": 1}}
    events = [
        {"round": 1, "metrics": {"error": 0.25}, "clients": {"anna": {"asked": 1, "used": 1}}},
        {"round": 2, "failed": "too few", "clients": {"anna": account}},
    ]
    (run.path / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    found = text(screen(show_run, run))
    assert "1 rounds done, error 0.2500, not finished" in found and f"atoll resume '{run.path}'" in found
    assert "client 'anna': of 2 tasks 1 failed (no reply)" in found
    plain = plain_run(run)
    assert plain["status"] == "unfinished" and plain["clients"]["anna"]["asked"] == 2 and len(plain["problems"]) == 1


def test_names_cannot_command_the_terminal(write: Write) -> None:
    odd = {EVIL: {"asked": 1, "used": 0, "failed": {EVIL: 1}, "idle": 0}}
    run = write("fedavg", [entry(EVIL, "high", EVIL, test=GOOD)], odd, (EVIL, "b", "c"))
    for show in (show_run, show_next, show_clients, show_classes):
        found = "\n".join(screen(show, run))
        assert "\x1b" not in found
    assert "[red]" in "\n".join(screen(show_run, run)) and "\\x1b[2J" in "\n".join(screen(show_classes, run))


def test_everything_for_programs(write: Write) -> None:
    run = write("fedavg", [entry("final", "high", test=GOOD)])
    plain = json.loads(json.dumps(plain_run(run)))
    assert plain["recommended"] == "high" and plain["problems"] == [] and plain["clients"] == {"anna": USED}
    assert plain["candidates"] == run.result["candidates"] and plain["path"] == str(run.path)


# -- what next -------------------------------------------------------------------------------------------------------


def hints(run: Run) -> dict[str, str]:
    lines = screen(show_next, run, width=400)
    return {what: how.strip() for what, _, how in (line.partition(":") for line in lines)}


def test_hints_after_a_search(write: Write) -> None:
    run = write("realtime", [entry("11", "high", test=GOOD), entry("01", "knee", test=GOOD)])
    found, path = hints(run), f"'{run.path}'"
    assert (
        found["report"].startswith(f"atoll report {path} -o report.html  #")
        and found["continue"] == f"atoll resume {path} --rounds 6"
    )
    assert found["export"].startswith(f"atoll export {path} -o net.onnx  #") and "'high'" in found["export"]
    assert found["predict"].startswith(f"atoll predict {path} new.csv  #") and "knee" not in str(found)


def test_a_network_at_chance_is_not_offered_for_use(write: Write) -> None:
    assert hints(write("realtime", [entry("11", "high", test={**GOOD, "test_error": 0.6})])).keys() == {
        "report",
        "continue",
    }


@pytest.mark.parametrize(
    ("method", "candidate", "what", "words"),
    [
        (
            "moefl",
            entry("1", "high", about={"trained_rounds": 4}),
            "train",
            ["--pick high", "only 4 rounds"],
        ),
        ("fedrl", entry("path", "high", about={"derived": {}}), "train", ["retrain", "--pick high"]),
        ("decnas", entry("m3", "final", about={"ended": "budget met"}), "tune", ["--from found", "budget met"]),
        ("decnas", entry("m0", "final", about={"stopped": "too few"}), "continue", ["resume", "--rounds 6"]),
        ("nevofed", entry("global", "high", "global", space="genome"), "explain", ["atoll explain"]),
    ],
)
def test_hints_are_right_for_the_method(
    write: Write, method: str, candidate: dict[str, Any], what: str, words: list[str]
) -> None:
    found = hints(write(method, [candidate]))
    assert all(word in found[what] for word in words), found
    assert ("continue" in found) == (what != "tune")


def test_a_run_that_was_stopped_is_not_offered_more_rounds(write: Write) -> None:
    """They would be refused, or end at once."""
    found = hints(write("realtime", [entry("11", "high", test=GOOD)], planned=20, stopped="stop.macs = 5 reached"))
    assert "continue" not in found
    assert found["tune"].endswith("--from found --pick high  # the run is over: stop.macs = 5 reached")


def test_evolved_networks_that_stopped_by_themselves_are_not_offered_more_rounds(write: Write) -> None:
    found = hints(write("nevofed", [entry("global", "high", "global", space="genome")], planned=50))
    assert found.keys() & {"continue", "tune"} == set()


@pytest.mark.parametrize(("method", "settings"), [("realtime", {"widths": [4]}), ("central", {"hidden": [4]})])
def test_the_command_for_a_stopped_run_works(method: str, settings: dict[str, Any], tmp_path: Path) -> None:
    data, limits = {"name": "wine"}, {"stop": {"rounds": 2}, "data": {"clients": 3}}
    run = atoll.search(method, data, out=tmp_path / "run", workers=0, rounds=5, settings=limits, **settings)
    words = shlex.split(hints(run)["tune"].partition("  #")[0])
    assert words[:2] == ["atoll", "retrain"]
    options = ["--rounds", "1", "--workers", "0", "--quiet", "--out", str(tmp_path / "on")]
    done = CliRunner().invoke(app, [*words[1:], *options])
    assert done.exit_code == 0, done.output


# -- clients and classes ---------------------------------------------------------------------------------------------


def test_clients(write: Write) -> None:
    clients = {"anna": USED, "ben": {"asked": 2, "used": 0, "rejected": {"shape": 1}, "failed": {"x": 1}, "idle": 1}}
    measured = {"anna": GOOD, "ben": {**GOOD, "test_error": 0.125}}
    own = entry("personal-anna", "personal-anna", owner="anna", clients={"anna": {**GOOD, "test_error": 0.0}})
    run = write("nevofed", [entry("global", "global", test=GOOD, clients=measured), own], clients)
    lines = screen(show_clients, run, width=120)
    heads = [word.strip() for word in lines[2].strip("┃").split("┃")]
    assert heads == ["client", "asked", "used", "rejected", "failed", "idle", "error", "own", "rows", "baseline", "F1"]
    assert row(lines, "anna") == ["anna", "6", "6", "0", "0", "0", "0.2500", "0.0000", "12", "0.5000", "0.7000"]
    assert row(lines, "ben") == ["ben", "2", "0", "1", "1", "1", "0.1250", "", "12", "0.5000", "0.7000"]
    assert "client 'ben' never took part: of 2 tasks 1 was rejected (arrays of another shape), 1 failed (x)" in text(
        lines
    )


def test_classes(write: Write) -> None:
    """Of three who stand one is found, and one of six who sit is taken for one: 1/3, 8/9, 1/2, 8/10."""
    run = write("fedavg", [entry("final", "high", test=GOOD), entry("other")])
    lines = screen(show_classes, run)
    assert row(lines, "stand  ")[:4] == ["stand", "2", "1", "0"]
    rates = [line for line in lines if "stand" in line][-1]
    assert [word.strip() for word in rates.strip("│").split("│")] == [
        "stand",
        "3",
        "0.3333",
        "0.8889",
        "0.5000",
        "0.8000",
    ]
    with refused(RunDirectoryError, "no-confusion-matrix", "'other'"):
        screen(show_classes, run, "other")
    with refused(RunDirectoryError, "unknown-pick", "'hihg'", "'high'"):
        screen(show_classes, run, "hihg")


def test_many_classes_are_shown_by_their_mistakes(write: Write) -> None:
    classes = tuple(f"class_{number}" for number in range(30))
    confusion = [[9 if a == b else 3 * (a == 1 and b == 2) for b in range(30)] for a in range(30)]
    confusion[29][29] = 0  # a class without rows has no rates
    run = write("fedavg", [entry("final", "high", test={**GOOD, "confusion": confusion})], classes=classes)
    lines = screen(show_classes, run)
    assert "'class_1' answered as 'class_2': 3 of 12 rows" in text(lines) and "nan" not in text(lines)
    assert row(lines, "class_29") == ["class_29", "0", "-", "1.0000", "-", "1.0000"]
