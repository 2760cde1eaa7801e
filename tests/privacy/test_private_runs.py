"""Runs under `[privacy]`: same bits, a budget that is enforced, and refusals before the first round."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from atoll.cli.app import app
from atoll.config import EngineSettings, resolve
from atoll.core.messages import Task
from atoll.data import DataSettings, Federated
from atoll.errors import ConfigError, Paused, RunDamaged
from atoll.export.card import model_card
from atoll.federation.engines import Request
from atoll.federation.local import SerialTransport, engine_of
from atoll.privacy.settings import PrivacySettings
from atoll.rng import stream
from atoll.run import launch
from atoll.run.private import with_noisy_labels
from atoll.run.reader import Run, load
from atoll.testing import made_images, made_table
from refusals import refused

SPLIT = (0.7, 0.3, 0.0)
GIVEN = {"epsilon": 5.0, "clip": 1.0, "noise": 2.0, "count_noise": 6.0}
FEDAVG = {"hidden": [4], "batch": 10, "rounds": 2}


def table(**options: Any) -> Federated:
    return made_table(clients=3, rows=60, scale="none", split=SPLIT, blocks="shuffled", **options)


def images() -> Federated:
    return made_images(clients=3, rows=30, scale="none", split=SPLIT, blocks="shuffled")


def started(
    out: Path, method: str, data: Federated, settings: dict[str, Any], privacy: dict[str, Any], **tables: Any
) -> Run:
    raw = {"method": method, "data": {"name": launch.IN_MEMORY}, method: settings, "privacy": privacy, **tables}
    raw.setdefault("engine", {"workers": 0})
    return launch.start(resolve(raw), out, data=data)


def weights(run: Run) -> list[str]:
    return [run.load_model(one["id"]).weights.whole_digest() for one in run.result["candidates"]]


def test_same_bits_for_any_number_of_workers(tmp_path: Path) -> None:
    runs = [
        started(tmp_path / str(workers), "fedavg", table(), FEDAVG, GIVEN, engine={"workers": workers})
        for workers in (0, 2)
    ]
    assert weights(runs[0]) == weights(runs[1])
    assert runs[0].result["privacy"] == runs[1].result["privacy"]
    spent = [event["epsilon"] for event in runs[0].history]
    final = runs[0].result["privacy"]["clients"]
    for name, own in final.items():  # in the events slightly above; counts of the result come after the last round
        assert 0 < spent[0][name] < spent[1][name] <= 1.01 * own["epsilon"]
    assert (tmp_path / "0/privacy.jsonl").read_bytes() == (tmp_path / "2/privacy.jsonl").read_bytes()
    other = started(tmp_path / "other", "fedavg", table(), FEDAVG, GIVEN, seed=2)
    assert weights(other) != weights(runs[0])


class Killed(Exception):
    pass


def test_a_killed_run_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    whole = started(tmp_path / "whole", "fedavg", table(), FEDAVG, GIVEN)

    class Killer:
        def round_done(self, number: int, *_: Any) -> None:
            if number == 1:
                raise Killed

        def round_failed(self, *_: Any) -> None: ...

    raw = {"method": "fedavg", "data": {"name": launch.IN_MEMORY}, "fedavg": FEDAVG, "privacy": GIVEN}
    with pytest.raises(Killed):
        launch.start(resolve({**raw, "engine": {"workers": 0}}), tmp_path / "run", data=table(), watcher=Killer())
    lines = (tmp_path / "run/privacy.jsonl").read_text().splitlines()
    assert lines, "what was sent is on the disk"
    account = (tmp_path / "run/privacy.jsonl").read_bytes()
    (tmp_path / "run/privacy.jsonl").unlink()
    with pytest.raises(RunDamaged, match="what was spent is not known"):
        launch.resume(tmp_path / "run", data=table())
    (tmp_path / "run/privacy.jsonl").write_bytes(account)
    again = launch.resume(tmp_path / "run", data=table())
    assert weights(again) == weights(whole)
    assert again.result["privacy"] == whole.result["privacy"]
    assert (tmp_path / "run/privacy.jsonl").read_bytes() == (tmp_path / "whole/privacy.jsonl").read_bytes()


@pytest.mark.parametrize("task", [1, 4])
def test_a_kill_within_a_round_spends_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: int) -> None:
    """Some tasks of the round were done, all were charged: doing them again is the same work with the same noise."""
    from atoll.federation import local

    whole = started(tmp_path / "whole", "fedavg", table(), FEDAVG, GIVEN)
    begin, begun = local.SerialTransport.start, iter(range(99))

    def mortal(self: Any, envelope: Any) -> None:
        if next(begun) == task:
            raise Killed
        begin(self, envelope)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(local.SerialTransport, "start", mortal)
        started(tmp_path / "run", "fedavg", table(), FEDAVG, GIVEN)
    killed = (tmp_path / "run/privacy.jsonl").read_bytes()
    assert len(killed.splitlines()) == (3 if task == 1 else 6)  # three clients, in each round
    again = launch.resume(tmp_path / "run", data=table())
    assert weights(again) == weights(whole) and again.result["privacy"] == whole.result["privacy"]
    account = (tmp_path / "run/privacy.jsonl").read_bytes()
    assert account == (tmp_path / "whole/privacy.jsonl").read_bytes() and account.startswith(killed)


def test_a_paused_run_notices_lines_that_are_missing_at_the_end(tmp_path: Path) -> None:
    path, asked = tmp_path / "run", iter([False, True])
    raw = {"method": "fedavg", "data": {"name": launch.IN_MEMORY}, "fedavg": FEDAVG, "privacy": GIVEN}
    with pytest.raises(Paused):
        launch.start(resolve({**raw, "engine": {"workers": 0}}), path, data=table(), stop=lambda: next(asked))
    lines = (path / "privacy.jsonl").read_text().splitlines(keepends=True)
    (path / "privacy.jsonl").write_text("".join(lines[:-1]))
    with refused(RunDamaged, "privacy-account-damaged", f"{len(lines)} lines"):
        launch.resume(path, data=table())


def test_the_account_is_written_before_a_task_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from atoll.federation import local

    seen: list[int] = []
    begin = local.SerialTransport.start

    def checked(self: Any, envelope: Any) -> None:
        task: Task = envelope.task
        written = [json.loads(line) for line in (tmp_path / "run/privacy.jsonl").read_text().splitlines()]
        places = [(line["round"], line["client"], line["number"]) for line in written]
        assert (envelope.round, task.client, envelope.number) in places
        assert "privacy" in task.payload
        seen.append(envelope.order)
        begin(self, envelope)

    monkeypatch.setattr(local.SerialTransport, "start", checked)
    run = started(tmp_path / "run", "fedavg", table(), FEDAVG, GIVEN)
    # One task in each of two rounds; the last network at the end and, if it is another, the best one.
    assert len(seen) == 3 * (2 + len(run.result["candidates"]))


def test_a_spent_budget_ends_the_run(tmp_path: Path) -> None:
    class Told:
        def __init__(self) -> None:
            self.lines: list[str] = []
            self.aside: list[str] = []

        def round_done(self, *_: Any) -> None: ...

        def round_failed(self, *_: Any) -> None: ...

        def client_set_aside(self, number: int, client: str, reason: str) -> None:
            self.aside.append(f"{number} {client} {reason}")

        def noted(self, lines: list[str]) -> None:
            self.lines += lines

    told = Told()
    raw = {"method": "fedavg", "data": {"name": launch.IN_MEMORY}, "fedavg": {**FEDAVG, "rounds": 9}}
    raw |= {"privacy": {**GIVEN, "epsilon": 6.0, "noise": 1.5, "count_noise": 9.0}, "engine": {"workers": 0}}
    found = launch.start(resolve(raw), tmp_path / "run", data=table(), watcher=told)
    result = found.result
    assert 0 < result["rounds"] < 9
    assert "privacy budget" in result["stopped"]
    assert any("3 of 3 clients will have spent their budget before the last round" in line for line in told.lines)
    assert len(told.aside) == 3 and all("privacy budget is spent for train rows" in line for line in told.aside)
    for own in result["privacy"]["clients"].values():
        assert 0 < own["epsilon"] <= 6.0 and own["spent"] == {"train": result["rounds"] + 1}
    assert all(own["epsilon"] == result["privacy"]["clients"][name]["epsilon"] for name, own in found.clients.items())
    assert len(result["ledger"]["per_round"]) == result["rounds"]


def test_a_budget_that_is_spent_in_the_first_round_ends_the_run_at_once(tmp_path: Path) -> None:
    """One task of each kind can be afforded, and the result is to be measured, too: no round is repeated or paused."""
    settings = {"hidden": [4], "batch": 10, "rounds": 9}
    given = {"epsilon": 1.0, "clip": 1.0, "noise": 9.0, "count_noise": 6.0}
    with refused(Paused, "privacy-budget-spent", "after round 0 of 9", "more noise") as caught:
        started(tmp_path / "run", "fedavg", table(), settings, given)
    assert isinstance(caught.value, Paused) and not caught.value.resumable
    failed = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert len(failed) == 1
    with refused(Paused, "privacy-budget-spent", "after round 0 of 9"):
        launch.resume(tmp_path / "run", data=table())


def test_a_deleted_account_is_noticed_before_the_first_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is there as soon as the run can be resumed."""
    from atoll.federation import local

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(local.SerialTransport, "start", killed)
        started(tmp_path / "run", "fedavg", table(), FEDAVG, GIVEN)
    assert not (tmp_path / "run/events.jsonl").read_bytes()
    (tmp_path / "run/privacy.jsonl").unlink()
    with refused(RunDamaged, "privacy-account-missing", "privacy.jsonl"):
        launch.resume(tmp_path / "run", data=table())


def test_without_an_account_nothing_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: no task is started, and later the run ends as if nothing had happened."""
    from atoll.federation import local
    from atoll.privacy import records

    whole = started(tmp_path / "whole", "fedavg", table(), FEDAVG, GIVEN)
    begun: list[int] = []

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk, pytest.raises(OSError, match="No space left"):
        disk.setattr(local.SerialTransport, "start", lambda self, envelope: begun.append(envelope.order))
        disk.setattr(records, "os", SimpleNamespace(fsync=full, fstat=os.fstat, truncate=os.truncate))
        started(tmp_path / "run", "fedavg", table(), FEDAVG, GIVEN)
    assert not begun
    again = launch.resume(tmp_path / "run", data=table())
    assert weights(again) == weights(whole) and again.result["privacy"] == whole.result["privacy"]


@pytest.mark.deploy
def test_derived_noise_spends_the_budget_and_not_more(tmp_path: Path) -> None:
    found = started(tmp_path / "run", "fedavg", table(), FEDAVG, {"epsilon": 4.0}).result["privacy"]
    assert found["clip"] == 1.0 and found["noise"] > 0 and found["count_noise"] > 0
    for own in found["clients"].values():
        assert 3.5 < own["epsilon"] <= 4.0
    assert "noise = " in (tmp_path / "run/config.toml").read_text()


def test_shared_labels_have_noise_and_are_charged(tmp_path: Path) -> None:
    data = table(share_labels=True)
    exact = [data.info(name).labels for name in data.holders()[0]]
    assert all(exact)
    found = started(tmp_path / "run", "fedavg", data, FEDAVG, {**GIVEN, "label_noise": 5.0})
    shared = [tuple(own["labels"]) for own in found.manifest["clients"].values()]
    assert shared != exact
    first = json.loads((tmp_path / "run/privacy.jsonl").read_text().splitlines()[0])
    assert first["work"] == "labels" and first["releases"] == [["train", 5.0, 1.0, 1]]


def test_runs_with_other_noise_do_not_cancel_it(tmp_path: Path) -> None:
    """With the same normal numbers in both, 4/3 of one result minus 1/3 of the other would be the exact counts."""
    data = table(share_labels=True)
    exact = np.array([data.info(name).labels for name in data.names])

    def shared(noise: float) -> Any:
        settings = PrivacySettings(epsilon=5.0, label_noise=noise)
        request = Request(EngineSettings(), DataSettings(name="in-memory"), 1, "fedavg", "", given=data)
        found = with_noisy_labels(engine_of(request, lambda _: SerialTransport(data, 1)), settings, 1)
        return np.array([info.labels for info in found.clients])

    few, many = shared(3.0), shared(12.0)
    assert (few == shared(3.0)).all()
    assert (np.rint((4 * few - many) / 3) != exact).any()


def test_tables_are_scaled_by_noisy_sums(tmp_path: Path) -> None:
    """They are charged once to each client's training rows, before anything else, and are part of the plan."""
    rng = stream(4, "rows")
    for name in ("north", "south"):
        rows = [f"{20 + 60 * rng.random():.2f},{rng.random():.3f},{number % 2}" for number in range(60)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,dose,label", *rows]) + "\n")
    raw: dict[str, Any] = {"method": "fedavg", "data": {"folder": str(tmp_path), "split": [0.7, 0.3, 0.0]}}
    raw |= {"fedavg": FEDAVG, "engine": {"workers": 0}, "privacy": {**GIVEN, "moment_noise": 6.0}}
    with refused(ConfigError, "privacy-bounds", "needs bounds of column 'age'"):
        launch.start(resolve(raw), tmp_path / "run")
    raw["privacy"]["bounds"] = {"age": [0.0, 100.0], "dose": [0, 1]}
    run = launch.start(resolve(raw), tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run/privacy.jsonl").read_text().splitlines()]
    assert [(line["client"], line["work"], line["releases"]) for line in lines[:2]] == [
        (name, "moments", [["train", 6.0, 1.0, 1]]) for name in ("north", "south")
    ]
    text = (tmp_path / "run/config.toml").read_text()
    assert 'blocks = "shuffled"' in text and 'scale = "federated"' in text
    known = run.predictor("high").preparation.statistics
    assert known is not None and len(known.mean) == 2 and 0 < known.mean[0] < 100


SEARCHES: list[tuple[str, dict[str, Any]]] = [
    ("realtime", {"rounds": 3, "widths": [4, 4], "batch": 10, "norm": "group", "population": 2, "finish": 0.34}),
    ("offline", {"rounds": 2, "widths": [4, 4], "batch": 10, "norm": "group", "population": 2}),
    ("moefl", {"rounds": 2, "population": 2, "fitness_rounds": 1, "epochs": 1, "halving": True}),
    ("retrain", {"rounds": 2, "networks": {"one": {"space": "fixed", "model": "mlp", "hidden": [4]}}, "batch": 10}),
    ("retrain", {"rounds": 1, "with_validation": True, "batch": 10}),
    ("central", FEDAVG),
]


@pytest.mark.parametrize(
    ("method", "settings"),
    [pytest.param(*one, marks=[] if one[0] == "realtime" else pytest.mark.soak) for one in SEARCHES],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_searches_stay_within_their_plan(tmp_path: Path, method: str, settings: dict[str, Any]) -> None:
    """The projection is an upper bound: no client is refused, and none has spent more than was planned."""
    found = started(tmp_path / "run", method, table(), settings, {"epsilon": 6.0})
    own = found.result["privacy"]["clients"]
    assert all(0 < one["epsilon"] <= 6.0 and "spent" not in one for one in own.values())
    assert found.result["stopped"] is None


def test_realtime_on_images(tmp_path: Path) -> None:
    settings = {"rounds": 1, "channels": [4, 8], "batch": 10, "norm": "group", "population": 2}
    found = started(tmp_path / "run", "realtime", images(), settings, GIVEN)
    assert all(own["epsilon"] > 0 for own in found.clients.values())
    lines = [json.loads(line) for line in (tmp_path / "run/privacy.jsonl").read_text().splitlines()]
    assert {line["releases"][0][0] for line in lines} == {"train", "validation"}


CELLS = {"channels": 2, "cells": 2, "norm": "group", "retrain_channels": 2, "retrain_cells": 2, "batch": 10}
CELLS |= {"rounds": 4, "retrain": 2}
CELL_SEARCHES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("fedrl", {**CELLS, "warmup": 1, "choice": 2}, ["train", "validation"]),
    ("fedrl", {**CELLS, "warmup": 1, "epochs": 1, "choice": 0}, ["train", "validation"]),
    ("fednas", CELLS, ["train", "validation", "validation"]),
]


@pytest.mark.parametrize(("method", "settings", "parts"), CELL_SEARCHES, ids=["fedrl", "fedrl, epochs", "fednas"])
def test_searches_of_cells(tmp_path: Path, method: str, settings: dict[str, Any], parts: list[str]) -> None:
    """Gradients, alphas and rewards are charged, within the plan; same seed, same bits; then the cell is retrained."""
    runs = [started(tmp_path / name, method, images(), settings, {"epsilon": 6.0}) for name in ("one", "two")]
    assert weights(runs[0]) == weights(runs[1]) and runs[0].result["stopped"] is None
    assert all(
        0 < own["epsilon"] <= 6.0 and "spent" not in own for own in runs[0].result["privacy"]["clients"].values()
    )
    lines = [json.loads(line) for line in (tmp_path / "one/privacy.jsonl").read_text().splitlines()]
    assert [release[0] for release in lines[0]["releases"]] == parts
    assert lines[0]["round"] == 1 and any(line["round"] == 4 for line in lines)


def test_rewards_need_validation_rows_and_one_client_each(tmp_path: Path) -> None:
    none = made_images(clients=3, rows=30, scale="none", split=(1.0, 0.0, 0.0))
    with refused(ConfigError, "no-validation-rows", "'client-00' has no validation rows"):
        started(tmp_path / "a", "fedrl", none, CELLS, GIVEN)
    with refused(ConfigError, "privacy-not-covered", "robust.fitness = 'median'"):
        started(tmp_path / "b", "fedrl", images(), CELLS, GIVEN, robust={"fitness": "median"})


DECNAS = {
    "rounds": 3,
    "start_rounds": 1,
    "tune_rounds": [2],
    "batch": 10,
    "groups": 1,
    "epochs": 1,
    "resources": {"macs": 0.8},
}
CONVNET = {"model": "convnet", "widths": [4, 4, 8, 8, 8, 8], "norm": "group"}


@pytest.mark.parametrize(
    ("data", "own"),
    [
        (table, {"model": "mlp", "hidden": [8, 8]}),
        pytest.param(images, {**CONVNET, "measure": "trained"}, marks=pytest.mark.soak),
    ],
    ids=["mlp", "convnet"],
)
def test_decnas(tmp_path: Path, data: Callable[[], Federated], own: dict[str, Any]) -> None:
    """Candidates are trained and counted in one task; what is uploaded later was charged with it. Same seed, same
    bits."""
    settings = {**DECNAS, **own}
    given = {**GIVEN, "epsilon": 60.0}
    runs = [started(tmp_path / name, "decnas", data(), settings, given) for name in ("one", "two")]
    assert weights(runs[0]) == weights(runs[1]) and len(runs[0].result["candidates"]) == 2
    spent = runs[0].result["privacy"]["clients"].values()
    assert all(0 < one["epsilon"] <= 60.0 and "spent" not in one for one in spent)
    lines = [json.loads(line) for line in (tmp_path / "one/privacy.jsonl").read_text().splitlines()]
    kinds = [[release[0] for release in line["releases"]] for line in lines]
    assert all(kind in kinds for kind in ([], ["train"], ["validation"], ["train", "validation"]))
    with pytest.raises(ConfigError, match=r"robust\.confirm"):
        started(tmp_path / "no", "decnas", data(), settings, GIVEN, robust={"confirm": True})


def test_test_rows_of_clients_are_counted_once_with_noise(tmp_path: Path) -> None:
    """They are a part of their own: their epsilon is that of one count, and no round counts them."""
    data = made_table(clients=3, rows=60, scale="none", split=(0.5, 0.2, 0.3), blocks="shuffled")
    run = started(tmp_path / "run", "fedavg", data, FEDAVG, {**GIVEN, "noise": 9.0, "count_noise": 8.0})
    lines = [json.loads(line) for line in (tmp_path / "run/privacy.jsonl").read_text().splitlines()]
    tested = [line for line in lines if any(release[0] == "test" for release in line["releases"])]
    assert [line["client"] for line in tested] == data.names
    assert all(line["releases"] == [["test", 8.0, 1.0, 1]] for line in tested)
    found = run.candidate("high")
    assert set(found["clients"]) == set(data.names)
    assert found["test"]["test_rows"] == 54 and found["test"]["noisy"]
    assert 0 <= found["test"]["test_error"] <= 1 and "confusion" not in found["test"]
    assert not any("test_error" in event["metrics"] for event in run.history)
    shown = CliRunner().invoke(app, ["show", str(run.path)], env={"COLUMNS": "200"})
    assert "on 54 test rows of clients, with noise" in shown.output
    for words in (["clients", str(run.path)], ["report", str(run.path), "-o", str(tmp_path / "page.html")]):
        assert CliRunner().invoke(app, words).exit_code == 0
    assert "counted with noise" in (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "counted with noise" in model_card(run.predictor("high"), run.facts("high"), "net.onnx", 100, 0.0, 10)


def test_a_split_by_class_of_one_part_is_none(tmp_path: Path) -> None:
    data = made_table(clients=3, rows=60, scale="none", split=(1.0, 0.0, 0.0))
    assert data.client_rows.rules is not None and data.client_rows.rules.blocks == "random"
    plan = started(tmp_path / "run", "retrain", data, {"rounds": 1, "with_validation": True, "batch": 10}, GIVEN)
    assert plan.finished


def test_without_privacy_nothing_is_written(tmp_path: Path) -> None:
    raw = {"method": "fedavg", "data": {"name": launch.IN_MEMORY}, "fedavg": FEDAVG, "engine": {"workers": 0}}
    found = launch.start(resolve(raw), tmp_path / "run", data=table())
    assert "privacy" not in found.result and not (tmp_path / "run/privacy.jsonl").exists()
    assert not any("epsilon" in own for own in load(tmp_path / "run").clients.values())
