"""A site's node by itself: what it refuses, and what it keeps."""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.core import wire
from atoll.core.messages import ClientInfo, Payload, Reply, Task, Tensors
from atoll.deploy.flower.executor import run_task, with_hint
from atoll.deploy.limits import Limits
from atoll.deploy.node_store import MemoryFolder, MemoryLost, TensorFolder, run_folder, sweep_runs
from atoll.deploy.site import Site, SiteNode
from atoll.errors import AtollError, SiteError, TooFewReplies
from atoll.federation.replies import Replies
from atoll.methods.nevofed.search import NEvoFed, NEvoFedState
from atoll.methods.nevofed.settings import NEvoFedConfig
from atoll.rng import stream
from atoll.testing import made_table
from refusals import refused

DATA = made_table(clients=2)
NAME = DATA.names[0]
RUN = "ab" * 16


def node(folder: Path, limits: Limits | None = None) -> SiteNode:
    return SiteNode(Site(NAME, folder / "data", folder, limits=limits), lambda site, _, __: DATA.client(site.name))


def letter(order: int = 0, memory: int | None = None, run: str = RUN, **changes: Any) -> bytes:
    inner: Payload = {
        "client": NAME,
        "method": "fedavg",
        "job": "atoll.testing.jobs:remember",
        "payload": {},
        "size": {},
        "seed": 1,
        "round": 1,
        "number": 0,
        "device": "cpu",
        "memory": memory,
        "floor": None,
        "keep": [],
        "preparation": {},
    }
    frame = np.frombuffer(wire.encode(inner | changes), np.uint8)
    return wire.encode({"run": run, "order": order, "message": frame})


def ask(site: SiteNode, frame: bytes) -> Payload:
    return wire.decode(site.answer("task", frame))


def test_asking_again_gives_the_same_answer(tmp_path: Path) -> None:
    site = node(tmp_path)
    first = ask(site, letter(0))
    second = [ask(site, letter(1, memory=0)) for _ in range(3)]
    assert first["payload"] == {"calls": 1} and [answer["payload"] for answer in second] == [{"calls": 2}] * 3


def test_memory_is_bound_to_its_run(tmp_path: Path) -> None:
    site = node(tmp_path)
    ask(site, letter(0))
    answer = ask(site, letter(1, memory=0, run="cd" * 16))
    assert answer["lost"] is True and "is no longer on this site's disk" in answer["error"]


@pytest.mark.parametrize("run", ["../../elsewhere", "", "a/b", "AB" * 16, "ab"])
def test_a_run_cannot_leave_its_place(tmp_path: Path, run: str) -> None:
    answer = ask(node(tmp_path), letter(run=run))
    assert "not the name of a run" in answer["error"]
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.jsonl"]


def test_a_task_for_somebody_else_is_refused(tmp_path: Path) -> None:
    assert f"came to site '{NAME}'" in ask(node(tmp_path), letter(client="else"))["error"]


def test_limits_hold_before_a_job_is_looked_up(tmp_path: Path) -> None:
    site = node(tmp_path, Limits(methods=("nevofed",)))
    answer = ask(site, letter(job="no_such_module:job"))
    assert f"site '{NAME}' refuses: method 'fedavg'" in answer["error"] and "limits.methods" in answer["error"]
    weights = Tensors({"a": np.zeros(11, np.float32)})
    small = node(tmp_path, Limits(parameters=10))
    assert (
        "limits.parameters"
        in ask(small, letter(job="atoll.methods.fedavg:train", payload={"weights": weights}))["error"]
    )


def test_a_task_that_hangs_is_given_up_and_the_next_one_is_done(tmp_path: Path) -> None:
    site = node(tmp_path, Limits(jobs=("atoll.testing.jobs",), minutes=0.02))
    assert ask(site, letter(0))["payload"] == {"calls": 1}
    hung = ask(site, letter(1, memory=0, job="atoll.testing.jobs:dawdle", payload={"seconds": 30, "value": 1}))
    assert hung == {
        "order": 1,
        "error": f"site '{NAME}' refuses: the task took longer than limits.minutes = 0.02 allows",
    }
    assert ask(site, letter(2, memory=0))["payload"] == {"calls": 2}  # its memory is as it was


def test_the_check_is_under_the_time_limit_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An architecture may be made to be slow to build."""
    end = threading.Event()
    monkeypatch.setattr(Limits, "check", lambda *_: end.wait(30))
    answer = ask(node(tmp_path, Limits(minutes=0.002)), letter())
    end.set()
    assert "limits.minutes = 0.002" in answer["error"]


def test_a_job_that_is_not_allowed_is_refused_by_its_name_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = ask(node(tmp_path, Limits()), letter(job="hospital.methods:train"))
    for text in (answer["error"], caplog.text):
        assert all(word in text for word in (NAME, "'hospital.methods:train'", "limits.jobs"))


@pytest.mark.parametrize("size", [{"steps": -1}, {"population": 0}, {"steps": 1.5}, {"wide": 1}, [], None])
def test_a_size_that_is_none_is_refused(tmp_path: Path, size: Any) -> None:
    answer = ask(node(tmp_path, Limits(jobs=("atoll.testing.jobs",))), letter(size=size))
    assert isinstance(answer["error"], str) and "payload" not in answer


def test_a_population_larger_than_declared_is_refused_by_the_job(tmp_path: Path) -> None:
    """The site sees what a task declares; the method's own code holds the server to it."""
    method = NEvoFed(NEvoFedConfig(rounds=1, population=20), DATA.schema)
    sent: list[Task] = []

    class Silent:
        def clients(self) -> list[ClientInfo]:
            return [ClientInfo(NAME, DATA.sizes(NAME), DATA.schema)]

        def collect(self, tasks: list[Task], what: str) -> Replies:
            sent.extend(tasks)
            return Replies((Reply(task, error="no answer") for task in tasks), len(tasks), what=what)

    with pytest.raises(TooFewReplies):
        method.step(NEvoFedState(0, {}, {}, [], -1.0, 0, {}, {}), cast(Any, Silent()), stream(1, "test"))
    [task] = sent
    site = node(tmp_path, Limits())
    honest = {"method": "nevofed", "job": task.job, "payload": task.payload, "size": asdict(task.size)}
    assert ask(site, letter(**honest))["error"] is None
    assert "declares 19" in ask(site, letter(**(honest | {"size": {"population": 19}})))["error"]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["hello", "prepare", "notice", "task"]), st.binary(max_size=60))
def test_rubbish_is_answered_and_never_raises(kind: str, frame: bytes) -> None:
    answer = wire.decode(node(Path("/nonexistent")).answer(kind, frame))
    assert isinstance(answer["error"], str)


def test_tensors_of_strange_names_are_not_written(tmp_path: Path) -> None:
    folder = TensorFolder(tmp_path / "tensors")
    tensors = Tensors({"a": np.arange(3, dtype=np.float32)})
    lying = Tensors({"b": np.arange(4, dtype=np.float32)})
    lying.know({"b": "../../escaped"})
    folder.keep({"x": tensors, "y": lying}, [tensors.digest("a"), "../../escaped"])
    assert list(folder) == [tensors.digest("a")] and not (tmp_path.parent / "escaped.npy").exists()
    assert "../../escaped" not in folder and np.array_equal(folder[tensors.digest("a")], tensors["a"])


def test_a_tensor_that_is_not_what_its_name_says_is_not_held(tmp_path: Path) -> None:
    folder = TensorFolder(tmp_path)
    lying = Tensors({"b": np.arange(4, dtype=np.float32)})
    lying.know({"b": "0" * 32})
    folder.keep({"y": lying}, ["0" * 32])
    assert folder.get("0" * 32) is None and folder.missed == {"0" * 32}


def test_tensors_stay_in_memory_while_their_files_are_there(tmp_path: Path) -> None:
    folder = TensorFolder(tmp_path)
    tensors = Tensors({"a": np.arange(3, dtype=np.float32)})
    digest = tensors.digest("a")
    folder.keep({"x": tensors}, [digest])
    assert folder[digest] is tensors["a"] and TensorFolder(tmp_path)[digest] is not tensors["a"]
    (tmp_path / f"{digest}.npy").unlink()
    assert folder.get(digest) is None, "another process could not go on from here"
    folder.keep({"x": tensors}, [digest])
    folder.keep({}, [])
    assert list(folder) == [] and folder.get(digest) is None


def test_a_full_disk_is_named_with_a_hint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(MemoryFolder, "write", full)
    answer = ask(node(tmp_path), letter())
    assert answer["error"] == f"site '{NAME}': no space is left on the disk of {tmp_path}; free some there"


def test_a_disk_that_fills_up_holds_no_parts_of_tensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        with open(path, "wb") as file:
            file.write(data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    folder, tensors = TensorFolder(tmp_path), Tensors({"a": np.arange(3, dtype=np.float32)})
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="No space left"):
        folder.keep({"x": tensors}, [tensors.digest("a")])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".killed.new").touch()
    assert list(TensorFolder(tmp_path)) == list(tmp_path.iterdir()) == []


def test_a_disk_that_is_full_before_anything_of_atoll_runs(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Flower unpacks the app for each message: its failure is a line at the site, and what the server is sent."""

    def install(*_: object, number: int) -> None:
        raise OSError(number, os.strerror(number))

    with refused(SiteError, "disk-full", "no space is left", tempfile.gettempdir(), "free some"):
        with_hint(install)(b"app", number=errno.ENOSPC)
    said = capsys.readouterr().err
    assert said.startswith("atoll: no space is left") and said.count("\n") == 1
    with pytest.raises(PermissionError):
        with_hint(install)(b"app", number=errno.EACCES)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "write", lambda _: install(number=errno.ENOSPC))  # the log is on the same disk
    with refused(SiteError, "disk-full", "free some"):
        with_hint(install)(b"app", number=errno.ENOSPC)


def test_a_fork_that_can_print_nothing_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on as a second executor."""

    def fails(**_: object) -> None:
        raise RuntimeError("on a full disk")

    monkeypatch.setattr("flwr.supernode.runtime.run_clientapp.run_clientapp", fails)
    pid = os.fork()
    if pid == 0:
        try:
            sys.stderr = open("/dev/full", "w", buffering=1)  # noqa: SIM115
            run_task(SimpleNamespace(runtime_api_address="", token="", insecure=True, parent_pid=None))
        finally:
            os._exit(99)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1


def test_data_stays_in_memory_for_one_preparation(tmp_path: Path) -> None:
    loaded: list[Payload] = []

    def load(site: Site, _: Path, preparation: Payload) -> Any:
        loaded.append(preparation)
        return DATA.client(site.name)

    site = SiteNode(Site(NAME, tmp_path / "data", tmp_path), load)
    for preparation in ({"a": 1}, {"a": 1}, {"a": 2}):
        assert ask(site, letter(preparation=preparation))["error"] is None
    assert loaded == [{"a": 1, "private": False}, {"a": 2, "private": False}]


def test_versions_of_memory(tmp_path: Path) -> None:
    kept = MemoryFolder(tmp_path / "memory")
    for version in (3, 7, 9):
        kept.write(version, {"version": version, "values": np.arange(version)})
    assert kept.read(None) == {} and kept.read(7)["version"] == 7
    kept.forget_before(7)
    with refused(MemoryLost, "memory-lost", "task 3"):
        kept.read(3)
    assert len(kept.read(9)["values"]) == 9


def test_runs_that_have_long_been_silent_are_forgotten(tmp_path: Path) -> None:
    for name, days in (("aa" * 8, 100), ("bb" * 8, 10)):
        with run_folder(tmp_path, name) as folder:
            (folder / "x").write_text("x")
        past = time.time() - days * 86400
        os.utime(tmp_path / "runs" / name, (past, past))
    (tmp_path / "runs" / "not-a-run").mkdir()
    sweep_runs(tmp_path)
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["bb" * 8, "not-a-run"]


def test_only_the_owner_sees_a_runs_folder(tmp_path: Path) -> None:
    with run_folder(tmp_path, RUN) as folder:
        assert folder.stat().st_mode & 0o077 == 0
    with refused(AtollError, "bad-run-name", "../x"), run_folder(tmp_path, "../x"):
        pass


def test_the_site_logs_what_was_asked_and_what_left(tmp_path: Path) -> None:
    site = node(tmp_path, Limits(methods=("fedavg",), jobs=("atoll.testing.jobs",)))
    frame = letter(3)
    answer = site.answer("task", frame)
    site.answer("task", letter(4, method="nevofed"))
    site.answer("task", b"junk")
    good, refusal, junk = map(json.loads, (tmp_path / "tasks.jsonl").read_text().splitlines())
    assert (good["job"], good["method"], good["order"]) == ("atoll.testing.jobs:remember", "fedavg", 3)
    assert (good["received_bytes"], good["sent_bytes"]) == (len(frame), len(answer))
    assert good["left"] == ["calls"] and good["error"] is None
    assert "limits.methods" in refusal["error"] and refusal["left"] == [] and "job" not in junk


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.deploy.site.LOG_BYTES", 1000)
    site = node(tmp_path)
    for _ in range(50):
        site.answer("task", b"junk")
    assert sum(path.stat().st_size for path in tmp_path.glob("tasks*.jsonl")) < 3000
