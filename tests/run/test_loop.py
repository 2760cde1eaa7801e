"""The one loop and the two ways into it: stopping, pausing, going further, and what a run leaves untouched."""

from __future__ import annotations

import json
import os
import pickle
import random
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from rich.console import Console

import atoll
from atoll.config import resolve
from atoll.core.messages import Payload, Tensors
from atoll.errors import ArchitectureError, ConfigError, DataError, Paused, RunDamaged, RunDirectoryError
from atoll.methods.fedavg import FedAvg, FedAvgState
from atoll.report.terminal import PlainProgress
from atoll.run import launch
from atoll.run.reader import Run, load
from atoll.store.checkpoints import Checkpoints
from atoll.testing import made_images, made_table
from refusals import refused

DATA = made_table(clients=4)
SHORT: dict[str, Any] = {"rounds": 4, "workers": 0}


def outcome(run: Run) -> dict[str, Any]:
    """Everything that must not depend on interruptions."""
    events = [{key: value for key, value in event.items() if key != "wall_seconds"} for event in run.history]
    result = {key: value for key, value in run.result.items() if key != "wall_seconds"}
    return {"result": result, "events": events}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return outcome(atoll.search("fedavg", DATA, out=tmp_path_factory.mktemp("whole") / "run", **SHORT))


def begin(path: Path, stop_after: int, data: Any = DATA, **settings: Any) -> None:
    """A run that is asked to stop after so many rounds."""
    raw = {"method": "fedavg", "data": {"name": "in-memory"}, "engine": {"workers": 0}}
    experiment = resolve({**raw, "fedavg": {"rounds": 4, **settings}})
    stop = lambda: len(load(path).rounds) >= stop_after  # noqa: E731
    with refused(Paused, "run-stopped", f"{stop_after} of 4"):
        launch.start(experiment, path, data=data, stop=stop)


# -- stopping and going on ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_stopped_run_goes_on_to_the_same_end(tmp_path: Path, whole: dict[str, Any], stop_after: int) -> None:
    begin(tmp_path / "run", stop_after)
    assert not load(tmp_path / "run").finished
    assert outcome(atoll.resume(tmp_path / "run", data=DATA)) == whole


def test_a_run_may_be_stopped_again_and_again(tmp_path: Path, whole: dict[str, Any]) -> None:
    path = tmp_path / "run"
    begin(path, 0)
    for rounds in (1, 2, 3):
        stop = lambda rounds=rounds: len(load(path).rounds) >= rounds  # noqa: E731
        with refused(Paused, "run-stopped"):
            launch.resume(path, data=DATA, stop=stop)
    assert outcome(atoll.resume(path, data=DATA)) == whole


def test_without_any_checkpoint_it_begins_again(tmp_path: Path, whole: dict[str, Any]) -> None:
    begin(tmp_path / "run", 2)
    for path in (tmp_path / "run" / "checkpoints").iterdir():
        path.unlink()
    with refused(RunDirectoryError, "checkpoints-missing", tmp_path / "run", "--accept-changes"):
        atoll.resume(tmp_path / "run", data=DATA)
    assert outcome(atoll.resume(tmp_path / "run", data=DATA, accept_changes=True)) == whole


def test_a_damaged_checkpoint_costs_a_round_and_changes_nothing(tmp_path: Path, whole: dict[str, Any]) -> None:
    begin(tmp_path / "run", 3)
    newest = max((tmp_path / "run" / "checkpoints").glob("*.json"))
    newest.write_bytes(newest.read_bytes()[:-30])
    assert outcome(atoll.resume(tmp_path / "run", data=DATA)) == whole


def test_all_checkpoints_damaged_is_said(tmp_path: Path) -> None:
    begin(tmp_path / "run", 2)
    for path in (tmp_path / "run" / "checkpoints").glob("*.json"):
        path.write_bytes(b"")
    with pytest.raises(RunDamaged, match=str(tmp_path / "run")):
        atoll.resume(tmp_path / "run", data=DATA)


def test_going_further_equals_a_longer_run(tmp_path: Path, whole: dict[str, Any]) -> None:
    atoll.search("fedavg", DATA, out=tmp_path / "run", rounds=2, workers=0)
    assert outcome(atoll.resume(tmp_path / "run", rounds=4, data=DATA)) == whole
    with refused(ConfigError, "fewer-rounds-than-planned", "--rounds 3", 4):
        atoll.resume(tmp_path / "run", rounds=3, data=DATA)


def test_a_full_disk_leaves_the_last_checkpoint(
    tmp_path: Path,
    whole: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "run"
    begin(path, 2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            atoll.resume(path, data=DATA)
    assert outcome(atoll.resume(path, data=DATA)) == whole


def test_rounds_that_fail_are_repeated_and_then_the_run_pauses(tmp_path: Path) -> None:
    """No weights survive this learning rate: every reply is refused."""
    seen: list[tuple[int, int, int]] = []

    class Watcher:
        def round_done(self, *_: object) -> None:
            raise AssertionError("no round can succeed")

        def round_failed(self, number: int, reason: str, attempt: int, patience: int) -> None:
            assert "nonfinite" in reason
            seen.append((number, attempt, patience))

    settings = {"patience": 2}
    with refused(Paused, "round-failed", "round 1", "2 times", "nonfinite"):
        atoll.search("fedavg", DATA, out=tmp_path / "run", watcher=Watcher(), settings=settings, lr=1e30, **SHORT)
    assert seen == [(1, 1, 2), (1, 2, 2)]
    run = load(tmp_path / "run")
    assert [event["attempt"] for event in run.history] == [1, 2] and run.rounds == [] and not run.finished
    with refused(Paused, "round-failed", "round 1"):  # nothing was changed: it fails in the same way again
        atoll.resume(tmp_path / "run", data=DATA)


class Overshooting(FedAvg):
    """Its server leaves the finite numbers in the second round, as often as `times` says."""

    name: ClassVar[str] = "overshooting"
    times: ClassVar[int] = 0

    def step(self, state: FedAvgState, *args: Any) -> tuple[FedAvgState, Any]:
        new, metrics = super().step(state, *args)
        if new.round == 2 and Overshooting.times:
            Overshooting.times -= 1
            poisoned = {name: np.full_like(array, np.inf) for name, array in new.weights.items()}
            new = replace(new, weights=Tensors(poisoned))
        return new, metrics


def test_a_step_that_leaves_the_finite_numbers_is_undone(tmp_path: Path) -> None:
    Overshooting.times = 1
    run = atoll.search(Overshooting, DATA, out=tmp_path / "run", **SHORT)
    (failed,) = [event for event in run.history if "failed" in event]
    assert failed["round"] == 2 and "not finite in 'weights'" in failed["failed"]
    assert any(repr(name) in failed["failed"] for name in DATA.names)
    assert [event["round"] for event in run.rounds] == [1, 2, 3, 4]


def test_a_checkpoint_after_such_a_step_is_finite(tmp_path: Path) -> None:
    Overshooting.times = 100
    with refused(Paused, "round-failed", "round 2", "not finite"):
        atoll.search(Overshooting, DATA, out=tmp_path / "run", **SHORT)
    found = Checkpoints(tmp_path / "run" / "checkpoints").read()
    assert found is not None and found[0] == 1
    assert all(np.isfinite(array).all() for array in found[1]["value"]["state"]["weights"].values())


class Ruined(FedAvg):
    """One client sends weights that would ruin the average."""

    name: ClassVar[str] = "ruined"
    job: ClassVar[str] = "odd_jobs:train_or_ruin"

    def extras(self) -> Payload:
        return {**super().extras(), "ruined_by": DATA.names[3]}


def test_a_client_that_ruins_every_round_is_rejected_set_aside_and_named(tmp_path: Path) -> None:
    """The others search on as if it did not exist, also over a stop."""
    told: list[tuple[int, str, str]] = []

    class Watcher:
        def round_done(self, *_: object) -> None:
            pass

        def round_failed(self, *_: object) -> None:
            raise AssertionError("no round may fail")

        def client_set_aside(self, number: int, client: str, reason: str) -> None:
            told.append((number, client, reason))

    settings = {"robust": {"strikes": 2}}
    run = atoll.search(Ruined, DATA, out=tmp_path / "run", watcher=Watcher(), settings=settings, **SHORT)
    assert [(number, client) for number, client, _ in told] == [(2, DATA.names[3])] and "norm" in told[0][2]
    assert [event.get("set_aside", {}).keys() for event in run.rounds] == [set(), {DATA.names[3]}, set(), set()]
    account = run.clients[DATA.names[3]]
    assert account["rejected"] == {"norm": 2} and account["strikes"] == 2 and account["set_aside"] == 2
    assert any("set aside in round 2" in text for text in run.problems)
    raw = {"method": f"{Ruined.__module__}:Ruined", "data": {"name": "in-memory"}, "engine": {"workers": 0}}
    experiment = resolve({**raw, **settings, "Ruined": {"rounds": 4}})
    with refused(Paused, "run-stopped"):
        launch.start(experiment, tmp_path / "two", data=DATA, stop=lambda: len(load(tmp_path / "two").rounds) >= 2)
    assert outcome(atoll.resume(tmp_path / "two", data=DATA)) == outcome(run)


# -- what has changed between two sittings ------------------------------------------------------------------------


def test_other_data_is_refused(tmp_path: Path) -> None:
    begin(tmp_path / "run", 1)
    with refused(RunDirectoryError, "run-changed", "data.digest"):
        atoll.resume(tmp_path / "run", data=made_table(clients=4, rows=30))


def test_data_in_memory_must_be_given_again(tmp_path: Path) -> None:
    begin(tmp_path / "run", 1)
    with refused(RunDirectoryError, "data-in-memory", tmp_path / "run"):
        atoll.resume(tmp_path / "run")


@pytest.mark.parametrize(("part", "key"), [("versions", "torch"), ("computing", "threads"), ("data", "rows")])
def test_a_changed_world_is_refused_with_the_field(tmp_path: Path, part: str, key: str) -> None:
    path = tmp_path / "run"
    begin(path, 1)
    manifest = json.loads((path / "manifest.json").read_text())
    manifest[part][key] = "other"
    (path / "manifest.json").write_text(json.dumps(manifest))
    with refused(RunDirectoryError, "run-changed", f"{part}.{key}", "'other'", "--accept-changes"):
        atoll.resume(path, data=DATA)
    assert launch.resume(path, data=DATA, accept_changes=True).finished


def test_threads_of_this_process_do_not_matter(tmp_path: Path) -> None:
    """A notebook may have set two: a run computes with one all the same, and can be resumed."""
    torch.set_num_threads(2)
    begin(tmp_path / "run", 1)
    assert load(tmp_path / "run").manifest["computing"]["threads"] == 1
    torch.set_num_threads(2)
    assert atoll.resume(tmp_path / "run", data=DATA).finished


# -- in Python ----------------------------------------------------------------------------------------------------


def test_all_kinds_of_data(tmp_path: Path) -> None:
    tables: list[Any] = ["wine", {"name": "wine", "clients": 3}, made_table(), made_images(side=4)]
    folder = tmp_path / "own"
    folder.mkdir()
    for name in ("one", "two"):
        rows = "".join(f"{i},{i % 3},{i % 2}\n" for i in range(20))
        (folder / f"{name}.csv").write_text(f"a,b,label\n{rows}")
    for number, data in enumerate([*tables, folder, str(folder)]):
        assert atoll.search("fedavg", data, out=tmp_path / str(number), rounds=1, workers=0).finished


def test_settings_of_the_method_and_of_everything_else(tmp_path: Path) -> None:
    settings = {"patience": 9, "engine": {"deadline": 60.0}}
    run = atoll.search("fedavg", DATA, out=tmp_path / "run", seed=5, settings=settings, lr=0.05, hidden=[5], **SHORT)
    config = tomllib.loads((run.path / "config.toml").read_text())
    assert (config["seed"], config["patience"], config["engine"]["deadline"]) == (5, 9, 60.0)
    assert (config["fedavg"]["lr"], config["fedavg"]["hidden"]) == (0.05, [5])
    assert run.result["candidates"][0]["architecture"]["hidden"] == [5]


def test_mistakes(tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match="fedavgg"):
        atoll.search("fedavgg", DATA, out=out)
    with refused(ConfigError, "unknown-setting", "fedavg.leraning"):
        atoll.search("fedavg", DATA, out=out, leraning=1)
    with refused(ConfigError, "bad-data-argument", "data = 5"):
        atoll.search("fedavg", 5, out=out)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="digitss"):
        atoll.search("fedavg", "digitss", out=out)
    with pytest.raises(ArchitectureError, match="transformer"):
        atoll.search("fedavg", DATA, out=out, model="transformer")
    assert not out.exists()  # what does not fit is said before anything is written


def test_cuda_is_refused_where_there_is_none(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        return
    with refused(ConfigError, "device-missing", "engine.device = 'cuda'", "cpu"):
        atoll.search("fedavg", DATA, out=tmp_path / "run", settings={"engine": {"device": "cuda"}}, **SHORT)
    assert not (tmp_path / "run").exists()


def test_importing_the_room_does_not_hide_the_function() -> None:
    from atoll.algorithms import nsga2

    assert nsga2.__name__ == "atoll.algorithms.nsga2"
    assert atoll.search.__module__ == "atoll.api"


def test_only_public_names() -> None:
    assert all(getattr(atoll, name) is not None for name in atoll.__all__)
    with pytest.raises(AttributeError, match="serach"):
        _ = atoll.serach  # type: ignore[attr-defined]


# -- what a run leaves untouched ----------------------------------------------------------------------------------


def test_global_random_state_is_untouched(tmp_path: Path) -> None:
    def states() -> tuple[Any, ...]:
        return random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()

    before = states()
    atoll.search("fedavg", DATA, out=tmp_path / "run", **SHORT)
    assert states() == before


def test_the_state_of_the_global_generators_does_not_matter(tmp_path: Path, whole: dict[str, Any]) -> None:
    random.seed(1)
    torch.manual_seed(1)
    np.random.seed(1)
    assert outcome(atoll.search("fedavg", DATA, out=tmp_path / "run", **SHORT)) == whole


def test_nothing_is_pickled(tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was pickled")

    for module, names in (
        (pickle, ("load", "loads", "dump", "dumps", "Pickler", "Unpickler")),
        (torch, ("load", "save")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, refuse)
    begin(tmp_path / "run", 2)
    run = atoll.resume(tmp_path / "run", data=DATA)
    assert outcome(run) == whole
    run.model("high")
    endings = {path.suffix for path in run.path.rglob("*") if path.is_file() and path.name != "lock"}
    assert endings == {".toml", ".json", ".jsonl", ".safetensors"}


def test_progress_is_shown_only_when_it_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = atoll.search("fedavg", DATA, out=tmp_path / "silent", rounds=2, workers=0)
    assert capsys.readouterr().out == ""
    atoll.resume(first.path, data=DATA, rounds=3, progress=True)
    assert capsys.readouterr().out.startswith("round 3/3  error ")
    with refused(ConfigError, "conflicting-settings", "progress=True"):
        atoll.resume(first.path, data=DATA, rounds=4, progress=True, watcher=PlainProgress(Console()))


# -- the ledger is in the event log, once ---------------------------------------------------------------------------


def checkpoint_of(path: Path) -> dict[str, Any]:
    found = Checkpoints(path / "checkpoints").read()
    assert found is not None
    return found[1]


def test_a_checkpoint_has_no_accounts_of_rounds_and_one_of_an_earlier_version_is_continued(
    tmp_path: Path, whole: dict[str, Any]
) -> None:
    begin(tmp_path / "run", 2)
    saved = checkpoint_of(tmp_path / "run")
    assert saved["value"]["ledger"].keys() == {"before", "clients"} and saved["value"]["ledger"]["before"] == []
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    saved["value"]["ledger"] = {
        "rounds": [event["ledger"] for event in events],
        "clients": saved["value"]["ledger"]["clients"],
    }
    Checkpoints(tmp_path / "run" / "checkpoints").write(2, saved)
    run = atoll.resume(tmp_path / "run", data=DATA)
    assert outcome(run)["result"]["ledger"] == whole["result"]["ledger"]


def test_a_log_without_its_rounds_is_damage(tmp_path: Path) -> None:
    """A log of an earlier version has no sums, so that a lost line shows by the number of rounds only."""
    begin(tmp_path / "run", 2)
    file = tmp_path / "run" / "events.jsonl"
    first, second = (json.loads(line) for line in file.read_text().splitlines())
    second = {key: value for key, value in second.items() if key not in ("sum", "ledger")}
    first = {key: value for key, value in first.items() if key != "sum"}
    text = json.dumps(first) + "\n" + json.dumps(second)
    file.write_text(text + " " * (file.stat().st_size - len(text) - 1) + "\n")
    with refused(RunDamaged, "file-damaged", "1 rounds", "2"):
        atoll.resume(tmp_path / "run", data=DATA)
