"""The resident worker as a real process, asked over its real socket."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from atoll.core import wire
from atoll.core.messages import Payload
from atoll.data.files.agreement import agree, parse_description
from atoll.data.preprocess import Moments, scaling_of
from atoll.data.settings import SITES, DataSettings
from atoll.deploy.site_file import text_of
from atoll.deploy.supervisor import Part, flower_environment
from atoll.deploy.worker_socket import NAME, ask, listen, send
from atoll.errors import SiteError
from deployment import environment
from refusals import refused
from site_tasks import task_frame

RUN = "ab" * 16
JOBS = 'jobs = ["atoll.testing.jobs", "worker_jobs"]\n'
JOB_MODULE = '''
import os, signal


def die(payload, client):
    """Once, or every time."""
    if payload["always"] or not os.path.exists(payload["mark"]):
        open(payload["mark"], "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"process": 0}


def who(payload, client):
    return {"process": os.getpid()}


def grab(payload, client):
    return {"bytes": len(bytearray(payload["bytes"]))}


JOBS = {job.__name__: job for job in (die, who, grab)}
'''


class Resident:
    """A site with a worker that is kept running as a node does it."""

    def __init__(self, root: Path, wait: float = 60.0) -> None:
        self.root, self.wait = root, wait
        self.work = root / "work"
        self.work.mkdir(parents=True, mode=0o700)
        self.data = root / "rows.csv"
        self.data.write_text("x,z,label\n" + "".join(f"{i % 7},{i % 5},{i % 2}\n" for i in range(40)))
        self.file = root / "site.toml"
        self.file.write_text(text_of("north", "localhost:8443").replace("[limits]\n", f"[limits]\n{JOBS}"))
        (root / "modules").mkdir()
        (root / "modules" / "worker_jobs.py").write_text(JOB_MODULE)
        path = os.pathsep.join([str(root / "modules"), environment()["PYTHONPATH"]])
        facts = {"name": "north", "data": str(self.data), "folder": str(self.work), "site": str(self.file)}
        command = [sys.executable, "-m", "atoll.deploy.worker", json.dumps(facts)]
        variables = flower_environment(root) | {"PYTHONPATH": path}
        self.part = Part("worker", lambda: command, variables, self.work, root / "node.log", first_pause=0.05)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.preparation: Payload = {}

    def limit(self, name: str, value: str) -> None:
        text, places = re.subn(rf"(?m)^{name} = \S+", f"{name} = {value}", self.file.read_text())
        assert places == 1
        self.file.write_text(text)

    def start(self) -> None:
        self.part.start()
        self._thread.start()

    def stop(self) -> None:
        self._end.set()
        self._thread.join()
        self.part.stop()

    def _watch(self) -> None:
        while not self._end.wait(0.05):
            self.part.poll()

    def ask(self, kind: str, frame: bytes) -> Payload:
        return wire.decode(ask(self.work, kind, frame, self.wait), digests=False)

    def prepare(self) -> None:
        """What the server does before the first round, with one site."""
        settings = DataSettings(name=SITES, label="label")
        table = settings.model_dump(mode="json", exclude_none=True)
        hello = self.ask("hello", wire.encode({"data": table, "method": "fedavg"}))
        assert hello["error"] is None and hello["name"] == "north", hello
        form = agree({"north": parse_description(hello["description"])}, settings)
        common: Payload = {"data": table, "agreement": form.model_dump(mode="json"), "seed": 1}
        found = self.ask("prepare", wire.encode({**common, "share_labels": False}))
        assert found["error"] is None, found
        moments = found["moments"]
        scaling = scaling_of([Moments(moments["count"], moments["mean"], moments["squares"])], False)
        self.preparation = {**common, "digest": found["digest"], "mean": scaling.mean, "deviation": scaling.deviation}
        self.preparation["private"] = False

    def task(self, job: str, order: int = 0, **payload: Any) -> Payload:
        job = job if ":" in job else f"worker_jobs:{job}"
        return self.ask("task", task_frame(RUN, order, "north", job, payload, self.preparation))

    def log(self) -> str:
        return (self.root / "node.log").read_text()


@pytest.fixture(scope="module")
def resident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resident]:
    """In a folder whose path is longer than the address of a socket may be."""
    site = Resident(tmp_path_factory.mktemp("site") / ("long" * 30))
    site.start()
    try:
        site.prepare()
        yield site
    finally:
        site.stop()


@pytest.fixture
def limits(resident: Resident) -> Iterator[Resident]:
    """The same; the site's limits are as before in the end."""
    before = resident.file.read_text()
    yield resident
    resident.file.write_text(before)


def pid(site: Resident) -> int:
    answer = site.task("who")
    assert answer["error"] is None, answer
    return int(answer["payload"]["process"])


def test_one_process_answers_all_messages(resident: Resident) -> None:
    assert len(str(resident.work / NAME)) > 107
    assert stat.S_IMODE((resident.work / NAME).stat().st_mode) == 0o600
    assert pid(resident) == pid(resident) == resident.part.process.pid  # type: ignore[union-attr]


def test_what_flower_starts_for_each_message_imports_nothing_heavy() -> None:
    script = "import sys, atoll.deploy.flower.node_program; print(sorted(m for m in sys.modules if m[:5] == 'atoll'))"
    script += "; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=True)
    modules, torch = said.stdout.splitlines()
    assert torch == "False"
    flower = ["atoll.deploy.flower", "atoll.deploy.flower.frames", "atoll.deploy.flower.node_program"]
    assert json.loads(modules.replace("'", '"')) == [
        *("atoll", "atoll.deploy", *flower, "atoll.deploy.worker_socket", "atoll.errors")
    ]


def test_a_worker_that_dies_is_replaced_and_the_task_done_again(resident: Resident, tmp_path: Path) -> None:
    before = pid(resident)
    assert resident.task("die", mark=str(tmp_path / "mark"), always=False)["payload"] == {"process": 0}
    assert pid(resident) != before


def test_a_task_that_always_kills_its_worker_costs_that_task_only(resident: Resident, tmp_path: Path) -> None:
    with refused(SiteError, "worker-died", "twice", resident.work / "node.log"):
        resident.task("die", mark=str(tmp_path / "mark"), always=True)
    assert pid(resident)


def test_a_task_that_hangs_ends_with_its_worker_and_the_next_one_is_done(limits: Resident) -> None:
    before = pid(limits)
    limits.limit("minutes", "0.02")
    hung = limits.task("atoll.testing.jobs:dawdle", seconds=600, value=1)
    assert "limits.minutes = 0.02" in hung["error"] and "'north'" in hung["error"]
    assert pid(limits) != before


def test_a_task_that_takes_too_much_memory_is_refused_and_the_worker_lives(limits: Resident) -> None:
    before = pid(limits)
    limits.limit("memory", "1000")
    assert limits.task("grab", bytes=1_000_000)["payload"] == {"bytes": 1_000_000}
    large = limits.task("grab", bytes=8_000_000_000)
    assert "limits.memory = 1,000" in large["error"] and pid(limits) == before
    assert "limits.memory = 1,000" in limits.log()


def test_a_site_file_that_is_wrong_is_said_on_both_sides(limits: Resident) -> None:
    limits.limit("batch", "0")
    answer = limits.ask("hello", wire.encode({"data": None}))
    assert "limits.batch = 0" in answer["error"] and "limits.batch = 0" in limits.log()


def test_a_worker_of_another_version_refuses(resident: Resident) -> None:
    """Another version of Atoll is installed while the worker runs."""
    before = pid(resident)
    other = resident.root / "modules" / "atoll-99.1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: atoll\nVersion: 99.1\n")
    try:
        answer = resident.task("who")
    finally:
        shutil.rmtree(other)
    assert all(word in answer["error"] for word in ("'north'", "atoll", "99.1", "atoll site join"))
    assert "99.1 is installed now" in resident.log() and pid(resident) == before


def test_two_messages_at_once_are_answered_one_after_the_other(resident: Resident) -> None:
    answers: list[Payload] = []

    def one(number: int) -> None:
        answers.append(resident.task("atoll.testing.jobs:dawdle", seconds=0.3, value=number))

    threads = [threading.Thread(target=one, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer["payload"]["value"] for answer in answers) == [0, 1, 2]


def test_a_caller_that_goes_away_does_no_harm(resident: Resident) -> None:
    before = pid(resident)
    for blocks in ([], [b"task"], [b"task", b"junk"], [b"\xff", b""]):
        directory = os.open(resident.work, os.O_PATH)
        with socket.socket(socket.AF_UNIX) as caller:
            caller.connect(f"/proc/self/fd/{directory}/{NAME}")
            with suppress(BrokenPipeError):  # the worker may have left before the last block
                for block in blocks:
                    send(caller, block)
        os.close(directory)
    assert pid(resident) == before


def test_memory_does_not_grow_with_the_tasks(resident: Resident) -> None:
    def taken() -> int:
        return int(Path(f"/proc/{pid(resident)}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for _ in range(20):
        pid(resident)
    before = taken()
    for _ in range(200):
        pid(resident)
    assert taken() - before < 5_000_000


# -- the socket alone ------------------------------------------------------------------------------------------------


def test_a_worker_that_does_not_come_is_named(tmp_path: Path) -> None:
    with refused(SiteError, "worker-not-answering", tmp_path / NAME, "atoll site join"):
        ask(tmp_path, "hello", b"", patience=0.1)


def test_a_name_that_is_taken_is_said(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("mine")
    for use in (lambda: listen(tmp_path), lambda: ask(tmp_path, "hello", b"", patience=0.1)):
        with refused(SiteError, "worker-socket-taken", tmp_path / NAME):
            use()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_socket_of_another_user_is_refused(tmp_path: Path) -> None:
    with listen(tmp_path):
        os.chown(tmp_path / NAME, 12345, -1)
        for use in (lambda: listen(tmp_path), lambda: ask(tmp_path, "hello", b"", patience=0.1)):
            with refused(SiteError, "worker-socket-foreign", "12345", tmp_path / NAME):
                use()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_process_of_another_user_is_refused_by_the_worker(resident: Resident) -> None:
    """Even if somebody has opened the folder and the socket to all."""
    script = (
        "import os, socket, sys\n"
        "directory = os.open(sys.argv[1], os.O_PATH)\n"
        "os.setuid(12345)\n"
        "caller = socket.socket(socket.AF_UNIX)\n"
        "caller.connect(f'/proc/self/fd/{directory}/worker.sock')\n"
        "print(caller.recv(1))\n"
    )
    resident.work.chmod(0o711)
    (resident.work / NAME).chmod(0o666)
    command = [sys.executable, "-c", script, str(resident.work)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    resident.work.chmod(0o700)
    (resident.work / NAME).chmod(0o600)
    assert said.stdout == "b''\n", said.stderr
    assert "user 12345 tried to use the site's worker" in resident.log()
