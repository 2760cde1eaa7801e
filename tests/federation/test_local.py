"""The local engine's own affairs: processes that are killed or hang, jobs that misbehave, folders left behind.

What holds for every engine is in `test_engine_contract.py`.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from atoll import search
from atoll.core.checks import Count
from atoll.core.messages import Task
from atoll.errors import AtollError
from atoll.federation.base import Federation
from atoll.federation.exchange import ExchangeRules
from atoll.federation.local import WorkerTransport, clients_of, local_federation, scratch_folder
from atoll.testing import made_table
from programs import wait_until, workers_of
from refusals import refused

DATA = made_table(clients=6)
ONE, TWO = DATA.names[:2]


def task(client: str, job: str, **payload: Any) -> Task:
    odd = ("shout", "leave", "forget", "no_table", "whose_process", "remember")
    room = "odd_jobs" if job in odd else "atoll.testing.jobs"
    return Task(job, client, f"{room}:{job}", payload)


@pytest.fixture(scope="module")
def workers() -> Iterator[Federation]:
    """Two worker processes, for all tests of this file: starting them takes seconds."""
    with local_federation(DATA, 1, 2) as federation:
        federation.begin(1)
        yield federation


@pytest.fixture(params=["serial", "workers"])
def either(request: pytest.FixtureRequest) -> Iterator[Federation]:
    if request.param == "workers":
        yield request.getfixturevalue("workers")
        return
    with local_federation(DATA, 1, 0) as federation:
        federation.begin(1)
        yield federation


def processes(federation: Federation) -> set[int]:
    replies = [
        reply for _ in range(3) for reply in federation.map([task(name, "whose_process") for name in DATA.names])
    ]
    return {reply.payload["pid"] for reply in replies}


def test_jobs_that_print_or_read_do_not_break_the_pipe(workers: Federation) -> None:
    replies = list(workers.map([task(name, "shout") for name in DATA.names]))
    assert [reply.payload for reply in replies] == [{"read": ""}] * 6


def test_a_job_that_leaves_is_a_failure_of_its_client_alone(either: Federation) -> None:
    bad, good = either.map([task(ONE, "leave"), task(TWO, "echo", value=1)])
    assert bad.error is not None and bad.error.startswith("SystemExit: a job must not end its process")
    assert good.payload == {"value": 1}


def test_a_reply_must_be_a_table(either: Federation) -> None:
    (reply,) = either.map([task(ONE, "no_table")])
    assert reply.error is not None and "must be a table, not a list" in reply.error


def test_memory_can_be_cleared(either: Federation) -> None:
    counts = [reply.payload["count"] for _ in range(5) for reply in either.map([task(TWO, "forget")])]
    assert counts == [1, 2, 1, 2, 1]
    next(iter(either.map([task(TWO, "forget")])))
    assert TWO not in either.snapshot()["memory"]


def test_asking_for_more_than_is_left_does_not_hang(either: Federation) -> None:
    either.send([task(name, "echo", value=name) for name in DATA.names])
    first = either.receive(at_least=1)
    rest = either.receive()
    assert sorted(reply.payload["value"] for reply in (*first, *rest)) == DATA.names
    assert either.receive() == [] == either.receive(at_least=5)


def test_replies_nobody_took_do_not_block_those_that_are_waited_for(either: Federation) -> None:
    either.send([task(name, "echo", value="old") for name in DATA.names])
    replies = list(either.map([task(name, "echo", value="new") for name in (*DATA.names, "nobody")]))
    assert [reply.payload.get("value") for reply in replies] == ["new"] * 6 + [None]
    either.send([])
    late = either.receive(at_least=0)
    assert len(late) + len(either.receive(at_least=0)) == 6


def test_a_worker_killed_while_idle_is_replaced(workers: Federation) -> None:
    before = processes(workers)
    assert len(before) == 2
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    replies = list(workers.map([task(name, "echo", value=name) for name in DATA.names]))
    assert [reply.payload.get("value") for reply in replies] == DATA.names
    assert not processes(workers) & before


def test_an_answer_that_came_with_the_message_of_readiness_is_seen(workers: Federation) -> None:
    for pid in processes(workers):
        os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)  # both are gone, so each task goes to a new process at once
    workers.send([task(name, "echo", value=name) for name in DATA.names[:2]])
    time.sleep(4)  # both messages are in the pipe
    assert sorted(reply.payload["value"] for reply in workers.receive(at_least=2)) == sorted(DATA.names[:2])


def test_a_hung_client_costs_its_deadline_and_its_process(workers: Federation) -> None:
    before = processes(workers)
    workers.rules = ExchangeRules(deadline=5.0)
    try:
        start = time.monotonic()
        tasks = [task(ONE, "dawdle", seconds=600, value=0)] + [task(name, "echo", value=1) for name in DATA.names[1:]]
        hung, *others = workers.map(tasks)
        assert time.monotonic() - start < 60
    finally:
        workers.rules = ExchangeRules()
    assert hung.error == "no reply within 5 s" and all(reply.payload == {"value": 1} for reply in others)
    (again,) = workers.map([task(ONE, "echo", value=2)])
    assert again.payload == {"value": 2}
    assert len(processes(workers) & before) == 1


@pytest.mark.soak
def test_a_hung_client_delays_a_round_by_its_deadline_and_less_than_a_second(workers: Federation) -> None:
    list(workers.map([task(name, "echo", value=0) for name in DATA.names]))  # the workers have started
    workers.rules = ExchangeRules(deadline=3.0)
    try:
        start = time.monotonic()
        replies = list(workers.map([task(ONE, "dawdle", seconds=600, value=0), task(DATA.names[1], "echo", value=1)]))
        assert 3 <= time.monotonic() - start < 4 and [reply.ok for reply in replies] == [False, True]
    finally:
        workers.rules = ExchangeRules()


def test_after_the_deadline_a_serial_engine_starts_nothing_more() -> None:
    """The clock starts with the second task, because workers may have to start before the first."""
    with local_federation(DATA, 1, 0, deadline=1.0) as federation:
        federation.begin(1)
        replies = list(federation.map([task(name, "dawdle", seconds=1.2, value=0) for name in DATA.names]))
    assert [reply.ok for reply in replies] == [True] * 2 + [False] * 4
    assert federation.ledger.current.replies["failed"] == 4


def test_a_run_whose_workers_are_killed_ends_with_the_same_bits(tmp_path: Path) -> None:
    """One worker is killed between rounds, the other one in the middle of the next."""
    settings: dict[str, Any] = {"rounds": 6, "hidden": [64, 64], "epochs": 10, "batch": 4}
    quiet = search("fedavg", DATA, out=tmp_path / "quiet", workers=0, **settings)
    killed: list[int] = []

    def kill(pid: int) -> None:
        os.kill(pid, signal.SIGKILL)
        killed.append(pid)

    class Killer:
        def round_done(self, number: int, *_: object) -> None:
            if number == 2:
                one, two = workers_of(os.getpid())[-2:]
                kill(one)
                threading.Timer(0.02, kill, [two]).start()

        def round_failed(self, *_: object) -> None:
            raise AssertionError("no round may fail")

    loud = search("fedavg", DATA, out=tmp_path / "loud", workers=2, watcher=Killer(), **settings)
    assert len(killed) == 2
    for key in ("candidates", "ledger"):
        assert loud.result[key] == quiet.result[key]


def test_closing_ends_the_workers_and_removes_the_scratch_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(workers_of(os.getpid()))
    federation = local_federation(DATA, 1, 1)
    (pid,) = set(workers_of(os.getpid())) - before
    assert [path.name.split("-")[2] for path in tmp_path.iterdir()] == [str(os.getpid())]
    federation.close()
    assert pid not in workers_of(os.getpid()) and list(tmp_path.iterdir()) == []


def test_a_client_that_hangs_is_given_up_also_where_nothing_sets_a_deadline() -> None:
    """Here a quorum has left it behind. Its worker is replaced, and then the client is asked again."""
    transport = WorkerTransport(DATA, 1, 2, "cpu", longest=600.0)
    clients, *_ = clients_of(DATA)
    with Federation(transport, clients, rules=ExchangeRules(quorum=0.5)) as federation:
        federation.begin(1)
        (reply,) = federation.collect([task(ONE, "dawdle", seconds=600), task(TWO, "echo", value=1)])
        assert reply.task.client == TWO and federation.busy == {ONE}
        transport.longest = 0.0
        federation.send([])
        (reply,) = federation.receive(at_least=1)
        assert reply.error == "no answer within 0 s" and not federation.busy
        transport.longest = 600.0
        federation.wait_for_all()
        assert [reply.payload["value"] for reply in federation.collect([task(ONE, "echo", value=2)])] == [2]


def test_a_killed_fork_server_is_replaced() -> None:
    with local_federation(DATA, 1, 1) as federation:
        federation.begin(1)
        (before,) = processes(federation)
        parent = int(Path(f"/proc/{before}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(parent, signal.SIGKILL)
        assert processes(federation) == {before}  # its workers work on
        os.kill(before, signal.SIGKILL)
        (after,) = processes(federation)
    assert after != before
    wait_until(lambda: not Path(f"/proc/{after}").exists())


def test_workers_have_the_folder_and_the_environment_of_the_program(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also if the fork server was started with others."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ATOLL_EXAMPLE", "new")
    (tmp_path / "late_jobs.py").write_text(
        "import os\n\n\ndef place(payload, client):\n"
        "    return {'value': [os.getcwd(), os.environ['ATOLL_EXAMPLE'], os.environ['OMP_NUM_THREADS']]}\n"
        "\n\nJOBS = {'place': place}\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with local_federation(DATA, 1, 1) as federation:
        federation.begin(1)
        (reply,) = federation.map([Task("place", ONE, "late_jobs:place", {})])
    assert reply.payload["value"] == [str(tmp_path), "new", "1"]


def test_a_worker_that_cannot_start_is_said() -> None:
    with (
        local_federation(DATA, 1, 1, preload=["no_such_module"]) as federation,
        refused(AtollError, "worker-cannot-start", "no_such_module"),
    ):
        federation.begin(1)
        list(federation.map([task(ONE, "echo", value=1)]))


def test_scratch_folders_of_killed_processes_are_swept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    child = os.fork()
    if child == 0:
        try:
            scratch_folder()
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    (left,) = tmp_path.iterdir()
    (tmp_path / "atoll-scratch-notes").mkdir()  # not one of ours
    alive = tmp_path / f"atoll-scratch-{os.getppid()}-x"
    alive.mkdir()
    mine, lock = scratch_folder()
    with lock:
        scratch_folder()[1].release()
        assert mine.exists()
    assert not left.exists() and alive.exists() and mine.exists() and (tmp_path / "atoll-scratch-notes").exists()


def test_a_memory_with_nan_is_rejected_and_the_one_before_it_remains(either: Federation) -> None:
    before, bad, after = either.map([task(ONE, "remember", value=value) for value in (7, "nan", 8)])
    assert before.ok and after.payload == {"before": 7}
    assert bad.error == "rejected, nonfinite: NaN, or tensors that are not finite, in a client's memory"


def test_a_task_says_what_its_client_may_remember(either: Federation) -> None:
    described = [replace(task(TWO, "remember", value=v), remembers={"value": Count(5)}) for v in (3, 6, 4)]
    good, bad, after = either.map(described)
    assert good.ok and after.payload == {"before": 3}
    assert bad.error == "rejected, count: 6 is outside 0 to 5, in a client's memory"
