"""Trackers, against the real libraries with local stores: what the event log holds arrives, each round once."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.core.ledger import Account
from atoll.errors import ConfigError
from atoll.report.terminal import PlainProgress
from atoll.run.loop import report_notes, report_set_aside
from atoll.run.reader import Run, load
from atoll.tracking import TrackedWatcher, open_trackers
from atoll.tracking.feed import final_numbers, numbers
from page_runs import event, front_metrics, searched, write_run
from refusals import refused


def test_the_numbers_of_a_round_have_groups() -> None:
    total = Account(bytes_up=3, bytes_down=4, client_macs=5)
    total.replies["failed"] = 2
    found = numbers(event(1, {"error": 0.5, "high": {"macs": 7}}), total)
    assert found == {
        "metrics/error": 0.5,
        "high/macs": 7.0,
        "cost/bytes_up": 3.0,
        "cost/bytes_down": 4.0,
        "cost/client_macs": 5.0,
        "cost/wall_seconds": 0.5,
        "replies/failed": 2.0,
    }


def test_the_result_is_that_of_the_recommended_network(tmp_path: Path) -> None:
    found = final_numbers(searched(tmp_path / "run"))
    assert found == {
        "result/test_error": 0.2,
        "result/test_f1": 0.8,
        "result/baseline_error": 0.66,
        "result/macs": 4000.0,
        "result/params": 58.0,
        "result/upload_bytes": 232.0,
    }


class Memory:
    """A tracker that remembers, and can fail."""

    place = "memory"

    def __init__(self, last: int = 0, fails: str = "") -> None:
        self.last, self.fails = last, fails
        self.rounds: list[int] = []
        self.ended = False

    def begin(self, run: Run) -> int:
        self._fail("begin")
        return self.last

    def log(self, number: int, values: Any) -> None:
        self._fail("log")
        self.rounds.append(number)

    def end(self, run: Run) -> None:
        self._fail("end")
        self.ended = run.finished

    def _fail(self, where: str) -> None:
        if self.fails == where:
            raise OSError("the store is gone")


def test_a_tracker_gets_what_was_appended_and_none_twice(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "realtime", events=[event(1, front_metrics(1)), event(2, front_metrics(2))])
    all_of_it, later = Memory(), Memory(last=1)
    watcher = TrackedWatcher(None, run.path, [all_of_it, later], pytest.fail)
    watcher.round_done(2, 9, {}, Account(), 1.0)
    with open(run.path / "events.jsonl", "a") as file:
        file.write(json.dumps({"round": 3, "failed": "too few", "attempt": 1, "clients": {}}) + "\n")
        file.write(json.dumps(event(3, front_metrics(3))) + "\n")
    watcher.round_failed(3, "too few", 1, 3)
    watcher.finish()
    assert all_of_it.rounds == [1, 2, 3] and later.rounds == [2, 3] and not all_of_it.ended


@pytest.mark.parametrize("where", ["begin", "log", "end"])
def test_a_tracker_that_fails_does_not_end_the_run(tmp_path: Path, where: str) -> None:
    run, said, other = searched(tmp_path / "run"), [], Memory()
    watcher = TrackedWatcher(None, run.path, [Memory(fails=where), other], said.append)
    watcher.round_done(6, 6, {}, Account(), 1.0)
    watcher.finish()
    assert len(said) == 1 and "the store is gone" in said[0] and watcher.places() == ["memory"]
    assert other.rounds == [1, 2, 3, 4, 5, 6] and other.ended


def test_what_the_run_says_reaches_the_progress_behind_the_trackers(tmp_path: Path) -> None:
    out = io.StringIO()
    watcher = TrackedWatcher(PlainProgress(Console(file=out)), tmp_path, [], pytest.fail)
    report_notes(watcher, ["its data is not that of its last run"])
    report_set_aside(watcher, 3, {"south": "lies"})
    assert "not that of its last run" in out.getvalue() and "south" in out.getvalue()


def test_a_run_that_never_began_tracks_nothing(tmp_path: Path) -> None:
    one = Memory()
    TrackedWatcher(None, tmp_path / "nothing", [one], pytest.fail).finish()
    assert one.rounds == [] and not one.ended


def test_unknown_trackers_are_one_line() -> None:
    with refused(ConfigError, "unknown-tracker", "tensorbord", "tensorboard"):
        open_trackers(["tensorbord"])


def test_tensorboard_holds_every_round_once_also_after_a_resumption(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    command = [
        "run",
        "fedavg",
        "--data",
        "wine",
        "--clients",
        "3",
        "--workers",
        "0",
        "--quiet",
        "--track",
        "tensorboard",
    ]
    out = tmp_path / "run"
    done = CliRunner().invoke(app, [*command, "--rounds", "2", "--out", str(out), "--set", "fedavg.hidden=[4]"])
    assert done.exit_code == 0 and f"tensorboard --logdir {out}" in done.output, done.output
    done = CliRunner().invoke(
        app, ["resume", str(out), "--rounds", "4", "--quiet", "--track", "tensorboard", "--workers", "0"]
    )
    assert done.exit_code == 0, done.output
    stored = EventAccumulator(str(out / "tensorboard"))
    stored.Reload()
    rounds = load(out).rounds
    kept = [(one.step, one.value) for one in stored.Scalars("metrics/error")]
    assert [step for step, _ in kept] == [1, 2, 3, 4]
    assert [value for _, value in kept] == pytest.approx([one["metrics"]["error"] for one in rounds])
    assert stored.Scalars("cost/bytes_up")[-1].value == pytest.approx(sum(one["ledger"]["bytes_up"] for one in rounds))
    assert stored.Scalars("result/test_error")[-1].value == pytest.approx(
        load(out).result["candidates"][0]["test"]["test_error"]
    )


def test_mlflow_holds_settings_rounds_and_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "trial")
    monkeypatch.chdir(tmp_path)  # artifacts are written beside
    run = write_run(tmp_path / "first", "realtime", 6, events=[event(1, front_metrics(1)), event(2, front_metrics(2))])
    (tracker,) = open_trackers(["mlflow"])
    watcher = TrackedWatcher(None, run.path, [tracker], pytest.fail)
    watcher.round_done(2, 6, {}, Account(), 1.0)
    watcher.finish()
    # It is resumed: round 2 is there again, then it goes on to the end.
    whole = searched(tmp_path / "whole")
    for name in ("events.jsonl", "result.json"):
        (run.path / name).write_bytes((whole.path / name).read_bytes())
    watcher = TrackedWatcher(None, run.path, open_trackers(["mlflow"]), pytest.fail)
    watcher.round_done(6, 6, {}, Account(), 1.0)
    watcher.finish()
    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("trial")
    assert experiment is not None and os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_name == "first" and found.info.status == "FINISHED"
    assert found.data.tags["atoll.method"] == "realtime" and found.data.params["realtime.rounds"] == "6"
    errors = client.get_metric_history(found.info.run_id, "metrics/error")
    assert [one.step for one in errors] == [1, 2, 3, 4, 5, 6]
    assert [one.value for one in errors] == pytest.approx([0.1 + 0.5 / number for number in range(1, 7)])
    assert found.data.metrics["result/test_error"] == 0.2 and found.data.metrics["high/macs"] == 9000
    assert {one.path for one in client.list_artifacts(found.info.run_id)} == {"result.json", "config.toml"}


def test_a_store_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")  # nothing answers on this port
    with refused(ConfigError, "tracker-not-reachable", "http://127.0.0.1:9"):
        open_trackers(["mlflow"])
