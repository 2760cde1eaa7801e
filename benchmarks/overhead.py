"""What a round costs on each engine beyond its arithmetic: the same run on three clients, local, Ray and Flower.

    python benchmarks/overhead.py [--rounds 5] [--engines local,ray,flower]
        [--methods fedavg,realtime,closing,nevofed,fedrl,decnas] [--old ../atoll-0.1]

Seconds of a round, median, first round left out. `realtime` has search rounds only, `closing` measures the rounds of
its closing phase. Flower is a real federation on this machine (SuperLink, proxy, three nodes, TLS and keys; needs
nginx). All engines must give the same result, weights included. For Flower it also prints, per round, the seconds of
processor time that all processes of the federation took and the tasks of a site; the seconds of a round by its number
of exchanges, the first round left out here too; and for a message, as medians, where the time goes: until the node
looks for it; until the site's worker begins (transfer, fork, Flower's work for a message); the job; until the SuperLink
has the reply; until the server's program looks for it. At the end: rows for the table of docs/performance.md.

With --old the sites also run version 0.1 (`git worktree add ../atoll-0.1 e7bad84`), as far as it knows the method's
settings: fedavg, realtime and nevofed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from atoll.deploy.supervisor import descendants

PROGRAM = """
try:
    from atoll.cli.app import main
except ImportError:  # 0.1
    from atoll.cli import main
main()
"""
ATOLL = [sys.executable, "-c", PROGRAM]
SITES = ("north", "south", "west")
TABLE, IMAGES = "breast_cancer", "digits"
LOOK = 0.03  # seconds between two looks at the SuperLink's database
TARGETS = {1: 7, 2: 12}  # seconds of a round with this many exchanges
COLUMNS = (
    "`--methods`",
    "exchanges of a round",
    "a round on three sites (on local workers)",
    "processor time of a round",
    "tasks of a site in a round",
    "target",
    "at 0.1",
)
HEADER = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


@dataclass(frozen=True)
class Case:
    """A method with settings that make its rounds short."""

    method: str
    data: str
    settings: tuple[str, ...] = ()
    phase: str | None = None  # of the rounds that are measured
    least: int = 1  # rounds


# The same in 0.1, where its settings had other names or were not there.
OLD = {"fedavg": ("fedavg.hidden=[16]",), "realtime": (), "nevofed": ("nevofed.population=20",)}
CASES = {
    "fedavg": Case("fedavg", TABLE, ("fedavg.hidden=[16]",)),
    "realtime": Case("realtime", IMAGES, ("realtime.finish=0",)),
    "closing": Case("realtime", IMAGES, ("realtime.finish=0.5",), phase="final"),
    "nevofed": Case("nevofed", TABLE, ("nevofed.population=20",)),
    "fedrl": Case("fedrl", IMAGES, ("fedrl.warmup=1", "fedrl.retrain=1", "fedrl.channels=2", "fedrl.cells=1"), least=3),
    "decnas": Case(
        "decnas",
        IMAGES,
        (
            'decnas.model="convnet"',
            "decnas.widths=[2,2,4,4,4,4]",
            "decnas.start_rounds=1",
            "decnas.tune_rounds=[2]",
            "decnas.groups=2",
            "decnas.resources={macs=0.8}",
        ),
        least=4,
    ),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--engines", default="local,ray,flower")
    options.add_argument("--methods", default="fedavg")
    options.add_argument("--old", type=Path, help="a checkout of version 0.1, measured on sites before this one")
    given = options.parse_args()
    names, engines = given.methods.split(","), given.engines.split(",")
    old = None if given.old is None else given.old.resolve()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for data in sorted({CASES[name].data for name in names}):
            atoll("datasets", "export", data, "--names", ",".join(SITES), "--out", f"data/{data}")
        for name in names:
            case = CASES[name]
            rounds, results, found = max(given.rounds, case.least), [], dict[str, Measured]()
            before = None if old is None or name not in OLD else measured_before(old, name, rounds)
            for engine in engines:
                run = Path(f"{name}-{engine}")
                found[engine] = measured(case, engine, run, rounds)
                seconds = f"{found[engine].seconds:8.3f} s a round"
                print("\n".join([f"{name:>8} {engine:>8}  {seconds}", *found[engine].lines]), flush=True)
                results.append(result_of(run))
            same = all(result == results[0] for result in results)
            print(f"{name:>8} {'the same result on all of them' if same else 'DIFFERENT RESULTS'}", flush=True)
            if "flower" in found:
                rows.append(row_of(name, found["flower"], found.get("local"), before))
    if rows:
        print("\n".join([HEADER, *rows]))


@dataclass
class Measured:
    """A run: the seconds of a round and, on sites, what else is known of it."""

    seconds: float
    processor: float = 0.0  # seconds of a round, of all processes
    tasks: float = 0.0  # of a site in a round
    exchanges: dict[int, list[float]] = field(default_factory=dict)  # their number -> seconds of such rounds
    lines: list[str] = field(default_factory=list)  # besides the seconds of a round


def row_of(name: str, there: Measured, here: Measured | None, before: Measured | None) -> str:
    """A row of the table in docs/performance.md."""
    kinds = sorted(there.exchanges.items())
    each = [f"{number} in {len(some)} of the rounds" for number, some in kinds]
    exchanges = str(kinds[0][0]) if len(kinds) == 1 else ", ".join(each)
    targets = []
    for number, some in kinds:
        if number in TARGETS:
            met = "met" if statistics.median(some) <= TARGETS[number] else "**missed**"
            targets.append(f"at most {TARGETS[number]} s with {number}: {met} ({statistics.median(some):.2f} s)")
    cells = [
        f"`{name}`",
        exchanges,
        f"{there.seconds:.2f} s ({'not measured' if here is None else f'{here.seconds:.3f} s'})",
        f"{there.processor:.1f} s",
        f"{there.tasks:.1f}",
        "; ".join(targets),
        "" if before is None else f"{before.seconds:.1f} s, {before.processor:.1f} s of processor time",
    ]
    return f"| {' | '.join(cells)} |"


def measured_before(old: Path, name: str, rounds: int) -> Measured:
    """The same method on sites with version 0.1."""
    case = Case(CASES[name].method, CASES[name].data, OLD[name])
    run = Path(f"{name}-before")
    with version(old), federation(case.data, run.name) as place:
        begin = processor_seconds()
        search(case, run, rounds, "--federation", place)
        taken = (processor_seconds() - begin) / rounds
    found = Measured(seconds_of_a_round(case, run), taken)
    print(f"{name:>8}   at 0.1  {found.seconds:8.3f} s a round, {found.processor:.1f} s of processor time", flush=True)
    return found


@contextmanager
def version(source: Path) -> Iterator[None]:
    """Programs that are started in this block import Atoll from this checkout."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(source / "src")
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def measured(case: Case, engine: str, run: Path, rounds: int) -> Measured:
    """Do a run."""
    if engine != "flower":
        search(case, run, rounds, "--data", f"data/{case.data}", "--workers", "2", "--engine", engine)
        return Measured(seconds_of_a_round(case, run))
    with federation(case.data, run.name) as place:
        begin = processor_seconds()
        with Looking(Path(place, "state", "superlink.db")) as looking:
            search(case, run, rounds, "--federation", place)
        taken = (processor_seconds() - begin) / rounds
        nodes, logs = json.loads(Path(place, "state", "nodes.json").read_text()), {}
        for site in SITES:
            lines = Path(place, "bundles", site, "work", "tasks.jsonl").read_text().splitlines()
            logs[nodes[site]] = [json.loads(line) for line in lines]
        log = logs[nodes[SITES[0]]]
        tasks = sum(entry["message"] == "task" for entry in log) / rounds
        exchanges = by_exchanges(rounds_of(case, run), looking.exchanges(logs))
        lines = [
            f"{taken:.1f} s of processor time, a site: {tasks:.1f} tasks",
            f"exchanges of a round: {in_words(exchanges)}",
            *looking.shares(nodes[SITES[0]], log),
        ]
        found = Measured(seconds_of_a_round(case, run), taken, tasks, exchanges)
        found.lines = [f"{'':>20}{line}" for line in lines]
        return found


def seconds_of_a_round(case: Case, run: Path) -> float:
    return statistics.median(rounds_of(case, run).values())


def rounds_of(case: Case, run: Path) -> dict[int, float]:
    """Seconds of the rounds that are measured."""
    events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return {
        after["round"]: after["wall_seconds"] - before["wall_seconds"]
        for before, after in pairwise(events)
        if after["metrics"].get("phase") == case.phase or case.phase is None
    }


def by_exchanges(seconds: dict[int, float], exchanges: Counter[int]) -> dict[int, list[float]]:
    """The seconds of the rounds with the same number of exchanges."""
    found: dict[int, list[float]] = {}
    for number, taken in seconds.items():
        found.setdefault(exchanges[number], []).append(taken)
    return found


def in_words(exchanges: dict[int, list[float]]) -> str:
    return ", ".join(
        f"{number} in {len(some)}: {statistics.median(some):.2f} s" for number, some in sorted(exchanges.items())
    )


def result_of(run: Path) -> list[Any]:
    """What was found: the names of weight files are digests of the weights."""
    found = json.loads((run / "result.json").read_text())["candidates"]
    return [(one["id"], one["architecture"], one["weights"], one["objectives"]) for one in found]


@dataclass
class Looking:
    """Reads the times of messages from the SuperLink's database during a run: they are deleted with the reply."""

    path: Path
    sent: dict[str, tuple[int, float, str]] = field(default_factory=dict)  # message -> node, created, delivered
    replied: dict[str, tuple[float, float]] = field(default_factory=dict)  # message -> reply first seen, last seen

    def __enter__(self) -> Looking:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        link = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=1)
        while not self._ended.wait(LOOK):
            with suppress(sqlite3.OperationalError):
                for message, node, created, delivered in link.execute(
                    "SELECT message_id, dst_node_id, created_at, delivered_at FROM message_ins"
                ):
                    self.sent[message] = (node % 2**64, created, delivered)
                for message, delivered in link.execute("SELECT reply_to_message_id, delivered_at FROM message_res"):
                    if not delivered:
                        self.replied[message] = (self.replied.get(message, (time.time(),))[0], time.time())
        link.close()

    def exchanges(self, logs: dict[int, list[dict[str, Any]]]) -> Counter[int]:
        """Of each round, from the logs of all nodes. One begins with a task that is sent when no other is out: until
        its reply was last seen, or until the site had done it where the reply was fetched between two looks."""
        tasks = [
            (self.sent[name][1], name, entry["round"], datetime.fromisoformat(entry["at"]).timestamp())
            for node, entries in logs.items()
            for name, entry in zip(self._messages_to(node), entries, strict=False)
            if entry["message"] == "task"
        ]
        found, last = Counter[int](), 0.0
        for created, name, number, done in sorted(tasks):
            found[number] += created > last
            last = max(last, self.replied[name][1] if name in self.replied else done)
        return found

    def _messages_to(self, node: int) -> list[str]:
        """In the order in which the site did them, so in that of its log."""
        return [name for _, name in sorted((sent[1], name) for name, sent in self.sent.items() if sent[0] == node)]

    def shares(self, node: int, entries: list[dict[str, Any]]) -> list[str]:
        """Of a message to this node, with its site's log: medians."""
        mine = self._messages_to(node)
        if len(mine) != len(entries):
            return [f"{len(mine)} messages were seen and {len(entries)} are in the site's log: no shares"]
        found: list[list[float]] = []
        for name, entry in zip(mine, entries, strict=True):
            created, delivered = self.sent[name][1], datetime.fromisoformat(self.sent[name][2]).timestamp()
            ended = datetime.fromisoformat(entry["at"]).timestamp()
            begun = ended - entry["milliseconds"] / 1000
            if entry["message"] == "task" and name in self.replied:
                first, last = self.replied[name]
                found.append([delivered - created, begun - delivered, ended - begun, first - ended, last - first])
        words = ("until the node looks", "until the worker begins", "the job", "until the reply is there", "until seen")
        medians = [statistics.median(column) for column in zip(*found, strict=True)]
        text = ", ".join(f"{word} {value:.2f} s" for word, value in zip(words, medians, strict=True))
        return [f"a message ({len(found)} of them): {text}"]


def processor_seconds() -> float:
    """Of all processes that this one has started, and of those that they have waited for."""
    own = os.times()
    return own.children_user + own.children_system + sum(taken(pid) for pid in descendants(os.getpid()))


def taken(pid: int) -> float:
    """Seconds of processor time of a process and of its children that have ended; none if it has ended itself."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int) -> int:
    """Bytes of a process that are its own: those that it shares with a fork are divided between them."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))


ROLES = {  # what a process does -> a word of its command
    "SuperLink": "flower-superlink",
    "server's executor": "flower-superexec",
    "server's program": "flwr-serverapp",
    "proxy": "nginx",
    "supervisor of the server": "federation\0server",
    "site: supervisor": "site\0join",
    "site: node": "flower-supernode",
    "site: executor": "atoll.deploy.flower.executor",
    "site: worker": "atoll.deploy.worker",
}


def by_role() -> dict[str, list[int]]:
    """The processes of a federation that this one has started, by what they do."""
    found: dict[str, list[int]] = {}
    for pid in descendants(os.getpid()):
        with suppress(OSError):
            command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
            role = next((role for role, word in ROLES.items() if word in command), None)
            if role is not None:
                found.setdefault(role, []).append(pid)
    return found


@contextmanager
def federation(data: str, name: str) -> Iterator[str]:
    """A federation of three sites with this data, stopped in the end."""
    place = f"federation-{name}"
    words = ("--host", "localhost", "--port", str(free_port()))
    atoll("federation", "init", place, "--sites", ",".join(SITES), *words)
    background = [start("federation", "server", place)]
    try:
        for site in SITES:
            (file,) = Path("data", data).glob(f"{site}.*")
            words = ("--data", str(file), "--yes", "--share-labels")  # as the presets of decnas ask for
            background.append(start("site", "join", f"{place}/bundles/{site}", *words))
        atoll("federation", "status", place, "--wait", "300")
        yield place
    finally:
        for process in reversed(background):
            process.send_signal(signal.SIGTERM)
        for process in background:
            process.wait(60)
        time.sleep(1)


def free_port() -> int:
    """A port that was free a moment ago, as was the one after it, which is the SuperLink's."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            with suppress(OSError, OverflowError):
                second.bind(("127.0.0.1", port + 1))
                return port


def search(case: Case, out: Path, rounds: int, *options: str) -> None:
    settings = [word for setting in case.settings for word in ("--set", setting)]
    atoll("run", case.method, *options, "--rounds", str(rounds), "--out", str(out), "--quiet", *settings)


def atoll(*words: str) -> None:
    subprocess.run([*ATOLL, *words], check=True, stdout=subprocess.DEVNULL)


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*ATOLL, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
