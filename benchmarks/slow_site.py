"""A slow site must not set the pace: rounds over three real sites, one of them slowed down tenfold.

    python benchmarks/slow_site.py [--rounds 6] [--epochs 2000]

The worker of one site is stopped for nine tenths of the time (SIGSTOP, SIGCONT). Three runs on one federation: all
sites at full speed; one slow; one slow and `engine.quorum = 0.6`, so that a round ends with two of three. Prints rows
for the table of docs/performance.md: the seconds of a round (median, first one left out), the seconds of the slow
site's training, and what became of its replies.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from overhead import SITES, TABLE, Case, atoll, by_role, federation, search, seconds_of_a_round

SLOW = SITES[-1]
CYCLE = 0.5  # seconds of a stop and a go


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=6)
    options.add_argument("--epochs", type=int, default=2000, help="of a task, so that it takes seconds")
    given = options.parse_args()
    settings = ("fedavg.hidden=[16]", f"fedavg.epochs={given.epochs}", "fedavg.test_every=0")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        atoll("datasets", "export", TABLE, "--names", ",".join(SITES), "--out", f"data/{TABLE}")
        with federation(TABLE, "slow") as place:
            runs = {
                "three sites at full speed": (1, ()),
                "one tenfold slower": (10, ()),
                "one tenfold slower, `engine.quorum = 0.6`": (10, ("engine.quorum=0.6",)),
            }
            print("| run | a round | a training at the slow site | its replies |\n|---|---|---|---|", flush=True)
            for number, (name, (times, more)) in enumerate(runs.items()):
                out, case = Path(f"run-{number}"), Case("fedavg", TABLE, (*settings, *more))
                with slowed(times):
                    search(case, out, given.rounds, "--federation", place)
                cells = [name, f"{seconds_of_a_round(case, out):.2f} s", *about(place, out)]
                print(f"| {' | '.join(cells)} |", flush=True)


def about(place: str, out: Path) -> tuple[str, str]:
    """What the slow site did: its training tasks of the last run, and the fates of its replies."""
    lines = [json.loads(line) for line in Path(place, "bundles", SLOW, "work", "tasks.jsonl").read_text().splitlines()]
    run = [entry["run"] for entry in lines if "run" in entry][-1]
    work = [entry for entry in lines if entry.get("run") == run and str(entry.get("job", "")).endswith(":train")]
    fates: dict[str, int] = {}
    for line in (out / "events.jsonl").read_text().splitlines():
        for fate, count in json.loads(line)["clients"].get(SLOW, {}).items():
            if isinstance(count, int) and fate != "rounds":
                fates[fate] = fates.get(fate, 0) + count
    seconds = statistics.median(entry["milliseconds"] for entry in work) / 1000 if work else 0.0
    told = ", ".join(f"{count} {fate}" for fate, count in fates.items())
    return f"{seconds:.2f} s ({len(work)} of them)", told


@contextmanager
def slowed(times: int) -> Iterator[None]:
    """The slow site's worker takes this many times as long in this block."""
    ended = threading.Event()

    def stop_and_go() -> None:
        while not ended.is_set():
            pid = worker()  # a look at all processes takes time, in which the worker is to be as it is
            for number, share in ((signal.SIGSTOP, 1 - 1 / times), (signal.SIGCONT, 1 / times)) * 20:
                send(pid, number)
                if ended.wait(CYCLE * share):
                    break
            send(pid, signal.SIGSTOP)

    thread = threading.Thread(target=stop_and_go)
    if times > 1:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        if times > 1:
            thread.join()
            send(worker(), signal.SIGCONT)


def worker() -> int | None:
    """The slow site's worker, if it runs."""
    for pid in by_role().get("site: worker", []):
        with suppress(OSError):
            if f'"name": "{SLOW}"' in Path(f"/proc/{pid}/cmdline").read_text():
                return pid
    return None


def send(pid: int | None, number: int) -> None:
    with suppress(OSError):
        if pid is not None:
            os.kill(pid, number)


if __name__ == "__main__":
    main()
