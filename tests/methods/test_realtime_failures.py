"""Clients that fail during a real-time search: only their work is lost, and a round that cannot go on is repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from atoll.core.messages import Task
from atoll.data import Federated
from atoll.errors import TooFewReplies
from atoll.federation.base import Federation
from atoll.run.reader import load
from atoll.spaces.choice import space as choice
from atoll.store import RunDirectory
from atoll.testing import FaultyTransport, MethodContract, made_table
from methods.two_blocks import Script, client, realtime, state, step, values
from refusals import refused

MEASURED = [[0.5, 8.0], [0.4, 9.0]]  # objectives of two parents: a state after round 1


class Runs(MethodContract):
    """Whole runs, half of six clients in each round."""

    method = "realtime"
    settings: ClassVar[dict[str, Any]] = {"rounds": 4, "population": 2, "fraction": 0.5, "widths": [4, 4], "batch": 8}

    def data(self) -> Federated:
        return made_table(clients=6)


def _failing(fails: Callable[[Task, int], bool]) -> Callable[[Federation], None]:
    def prepare(federation: Federation) -> None:
        federation.transport = FaultyTransport(federation.transport, fails)

    return prepare


@pytest.mark.parametrize("fault", ["failed", "rejected"])
def test_an_individual_whose_clients_all_fail_is_as_if_it_had_not_been_asked(fault: str) -> None:
    """Client one (6 rows) adds 4, two (2 rows) fails or sends NaN: n is 6, so what one trained becomes 1 + 4 = 5."""

    def change(task: Task, number: int) -> float:
        if task.client == "one":
            return 4.0
        if fault == "failed":
            raise RuntimeError("out of memory")
        return float("nan")

    method = realtime()
    federation = Script([client("one", train=6), client("two", train=2)], change)
    after, metrics = step(method, state(method, [[1, 2], [3, 2]], MEASURED), federation)
    trained = {task.client: task.payload["key"] for task in federation.sent("train")}
    assert trained["one"] != trained["two"]
    assert metrics["untrained"] == ["".join(map(str, trained["two"]))]
    held = choice.names(choice.sub_model(method.architecture, trained["one"]))
    assert values(after.master) == {name: 5.0 if name in held else 1.0 for name in after.master}
    assert federation.ledger.total().replies[fault] == 1


def test_both_populations_of_round_1_can_lose_individuals() -> None:
    def change(task: Task, number: int) -> float:
        if task.client == "two":
            raise RuntimeError("out of memory")
        return 0.0

    method = realtime()
    federation = Script([client("one"), client("two")], change)
    _, metrics = step(method, state(method, [[1, 2], [3, 2]]), federation)
    lost = [task.payload["key"] for task in federation.sent("train") if task.client == "two"]
    assert metrics["untrained"] == ["".join(map(str, key)) for key in lost] and len(lost) == 2


def test_a_round_without_any_training_or_measurement_raises() -> None:
    def gone(*_: Any) -> Any:
        raise RuntimeError("gone")

    method = realtime()
    before = state(method, [[1, 2], [3, 2]], MEASURED)
    clients = [client("one"), client("two")]
    with refused(TooFewReplies, "too-few-replies", "2 clients", "2 x RuntimeError: gone"):
        step(method, before, Script(clients, change=gone))
    with refused(TooFewReplies, "too-few-replies", "2 x RuntimeError: gone"):
        step(method, before, Script(clients, correct=gone))


def test_a_failed_round_is_repeated_with_other_clients(tmp_path: Path) -> None:
    asked: list[str] = []

    def fails(task: Task, number: int) -> bool:
        if number == 2 and task.job.endswith(":train"):
            asked.append(task.client)
        return number == 2 and len(asked) <= 3

    run = Runs().run(tmp_path / "run", prepare=_failing(fails))
    assert run is not None and run.finished
    assert len(asked) == 6 and set(asked[:3]) != set(asked[3:])
    failed = [event for event in run.history if "failed" in event]
    assert [(event["round"], event["attempt"]) for event in failed] == [(2, 1)]
    assert "3 x made to fail" in failed[0]["failed"]
    assert [event["round"] for event in run.rounds] == [1, 2, 3, 4]


def test_after_patience_the_run_pauses_and_nothing_has_changed(tmp_path: Path) -> None:
    """Resumed with good clients it ends as a run in which nobody ever failed."""
    paused = tmp_path / "paused"
    assert Runs().run(paused, prepare=_failing(lambda task, number: number == 3)) is None
    failed = [event for event in load(paused).history if "failed" in event]
    assert [(event["round"], event["attempt"]) for event in failed] == [(3, 1), (3, 2), (3, 3)]
    with RunDirectory.reopen(paused) as directory:
        saved = directory.last_checkpoint()
    assert saved is not None and saved["state"]["round"] == 2 and len(saved["ledger"]) == 2
    resumed, untroubled = Runs().outcome(paused, again=True), Runs().outcome(tmp_path / "untroubled")
    assert [event for event in resumed["events"] if "failed" not in event] == untroubled["events"]
    assert {**resumed, "events": []} == {**untroubled, "events": []}


def test_the_command_line_says_so_with_exit_code_3(tmp_path: Path) -> None:
    """A deadline that nobody can meet."""
    out = tmp_path / "run"
    words = (
        "run realtime --data wine --clients 2 --rounds 2 --workers 1 --set engine.deadline=0.001 --set patience=2 --out"
    )
    program = [sys.executable, "-c", "from atoll.cli.app import main; main()", *words.split(), str(out)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 3
    assert all(value in done.stderr for value in ("round 1 ", "2 times", "2 clients"))
    assert f"atoll resume {out}" in done.stderr
    lines = (out / "events.jsonl").read_text().splitlines()
    assert [json.loads(line)["attempt"] for line in lines] == [1, 2]
    with RunDirectory.reopen(out) as directory:
        saved = directory.last_checkpoint()
    assert saved is not None and saved["state"]["round"] == 0
