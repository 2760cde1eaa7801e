"""What a round costs on each engine beyond its arithmetic: the same run on three clients, local, Ray and Flower.

    python benchmarks/overhead.py [--rounds 5] [--engines local,ray,flower] [--methods fedavg,realtime,nevofed]

Seconds of a round, median, first round left out. Flower is a real federation on this machine (SuperLink, proxy, three
nodes, TLS and keys; needs nginx). All engines must give the same result. For Flower it also prints, per round, the
seconds of processor time that all processes of the federation took from the start of the run to its end, and what a
site's log says: its tasks and the seconds that it worked on them.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from atoll.deploy.supervisor import descendants

ATOLL = [sys.executable, "-c", "from atoll.cli.app import main; main()"]
SITES = ("north", "south", "west")
DATA = {"fedavg": "breast_cancer", "realtime": "digits", "nevofed": "breast_cancer"}  # written to data/NAME
SETTINGS = {"fedavg": ("--set", "fedavg.hidden=[16]")}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--engines", default="local,ray,flower")
    options.add_argument("--methods", default="fedavg")
    given = options.parse_args()
    methods, engines = given.methods.split(","), given.engines.split(",")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for name in sorted({DATA[method] for method in methods}):
            atoll("datasets", "export", name, "--names", ",".join(SITES), "--out", f"data/{name}")
        for method in methods:
            results = []
            for engine in engines:
                run = Path(f"{method}-{engine}")
                if engine == "flower":
                    with federation(method) as place:
                        begin = processor_seconds()
                        search(method, run, given.rounds, "--federation", place)
                        taken = (processor_seconds() - begin) / given.rounds
                        working = f", {taken:.1f} s of processor time{work_seconds(place, given.rounds)}"
                else:
                    search(
                        method,
                        run,
                        given.rounds,
                        "--data",
                        f"data/{DATA[method]}",
                        "--workers",
                        "2",
                        "--engine",
                        engine,
                    )
                    working = ""
                events = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
                rounds = [after["wall_seconds"] - before["wall_seconds"] for before, after in pairwise(events)]
                print(f"{method:>8} {engine:>8}  {statistics.median(rounds):8.3f} s a round{working}", flush=True)
                results.append(result_of(run))
            same = all(result == results[0] for result in results)
            print(f"{method:>8} {'the same result on all of them' if same else 'DIFFERENT RESULTS'}", flush=True)


def result_of(run: Path) -> list[Any]:
    """What was found: the names of weight files are digests of the weights."""
    found = json.loads((run / "result.json").read_text())["candidates"]
    return [(one["id"], one["architecture"], one["weights"], one["objectives"]) for one in found]


def work_seconds(place: str, rounds: int) -> str:
    """How many tasks the first site did in a round, and how long it worked on them, from its own log."""
    log = Path(place, "bundles", SITES[0], "work", "tasks.jsonl")
    tasks = [entry for line in log.read_text().splitlines() if (entry := json.loads(line))["message"] == "task"]
    seconds = sum(entry.get("milliseconds", 0) for entry in tasks) / 1000
    return f"; a site: {len(tasks) / rounds:.1f} tasks and {seconds / rounds:.3f} s of work in a round"


def processor_seconds() -> float:
    """Of all processes that this one has started, and of those that they have waited for."""
    own = os.times()
    total = own.children_user + own.children_system
    for pid in descendants(os.getpid()):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return total


@contextmanager
def federation(method: str) -> Iterator[str]:
    """A federation of three sites with the data of this method, stopped in the end."""
    place = f"federation-{method}"
    atoll("federation", "init", place, "--sites", ",".join(SITES), "--host", "localhost")
    background = [start("federation", "server", place)]
    try:
        for site in SITES:
            (data,) = Path("data", DATA[method]).glob(f"{site}.*")
            background.append(start("site", "join", f"{place}/bundles/{site}", "--data", str(data), "--yes"))
        atoll("federation", "status", place, "--wait", "300")
        yield place
    finally:
        for process in reversed(background):
            process.send_signal(signal.SIGTERM)
        for process in background:
            process.wait(60)
        time.sleep(1)


def search(method: str, out: Path, rounds: int, *options: str) -> None:
    settings = SETTINGS.get(method, ())
    atoll("run", method, *options, "--rounds", str(rounds), "--out", str(out), "--quiet", *settings)


def atoll(*words: str) -> None:
    subprocess.run([*ATOLL, *words], check=True, stdout=subprocess.DEVNULL)


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*ATOLL, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
