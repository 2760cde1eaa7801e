"""The time of a round against an earlier version of Atoll, rounds alternating in one run.

    git worktree add ../atoll-0.1 e7bad84 && make -C ../atoll-0.1 install
    python benchmarks/versions.py --old ../atoll-0.1 [--method realtime] [--rounds 12] [--workers 2]

Each version runs the same search in a process and an environment of its own. The two take turns round by round, so that
whatever else the machine does falls on both. Fashion-MNIST is used if ATOLL_DATA names a folder that holds it, else
scikit-learn's digits. Printed: the median seconds of a round of each, by the clock and of all its processes' work, and
their ratio (below 1: faster now). First rounds, in which workers warm up, are not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import IO, Any

# Runs in either version: only names that both have.
PROGRAM = """
import json, os, sys, time
from pathlib import Path
import atoll

given = json.loads(sys.argv[1])


def processor_seconds():
    # of this process and all that it has started
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(stat.parent.name)] = int(words[1])
        used[int(stat.parent.name)] = int(words[11]) + int(words[12])
    own = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= more
    return sum(used.get(pid, 0) for pid in own) / os.sysconf("SC_CLK_TCK")


class Turns:
    def __init__(self):
        self.start = None

    def wait(self):
        sys.stdin.readline()
        self.start, self.before = time.monotonic(), processor_seconds()

    def round_done(self, number, rounds, metrics, total, seconds):
        took = {"wall": time.monotonic() - self.start, "processor": processor_seconds() - self.before}
        print(json.dumps(took), flush=True)
        self.wait()

    def round_failed(self, *reason):
        raise SystemExit(str(reason))


turns = Turns()
turns.wait()
atoll.search(given["method"], given["data"], out=given["out"], watcher=turns, settings=given["tables"], **given["own"])
"""
CHOICE: dict[str, Any] = {"population": 10, "batch": 20, "lr": 0.1, "momentum": 0.5, "average": "trained"}
OWN: dict[str, dict[str, Any]] = {
    "realtime": CHOICE | {"epochs": 1, "test_every": 0},
    "fedrl": {"batch": 32, "warmup": 1, "retrain": 0, "channels": 4, "cells": 3},
    "fedavg": {"epochs": 1, "batch": 20, "lr": 0.1, "test_every": 0},
    "moefl": {"epochs": 1, "test_every": 0, "fitness_rounds": 1},
    "nevofed": {"population": 100},
}
# What the new version has beyond the old one, switched off.
NEW: dict[str, dict[str, Any]] = {
    "realtime": {"finish": 0.0},
    "moefl": {"finish": 0.0, "max_connections": None, "crowding": "linear"},
    "nevofed": {"keep": "last", "refine": 0.0, "polish": 0.0},
}


class Version:
    """One version in a process of its own, which stops after every round."""

    def __init__(self, name: str, python: Path, given: dict[str, Any]) -> None:
        self.name = name
        self.rounds: list[dict[str, float]] = []
        command = [str(python), "-c", PROGRAM, json.dumps(given)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdin and self._process.stdout
        self._in: IO[str] = self._process.stdin
        self._out: IO[str] = self._process.stdout

    def round(self) -> None:
        self._in.write("go\n")
        self._in.flush()
        line = self._out.readline()
        if not line:
            raise SystemExit(f"{self.name}: ended early, see above")
        self.rounds.append(json.loads(line))

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, help="a worktree of the earlier version, installed")
    parser.add_argument("--method", choices=sorted(OWN), default="realtime")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.old is None:  # as in `make bench`
        print("skipped: there is no earlier version to compare with; name its worktree with --old")
        return
    folder = os.environ.get("ATOLL_DATA")
    fashion = folder is not None and (Path(folder) / "fashion_mnist.npz").exists()
    image = options.method in ("realtime", "fedrl")
    name = "fashion_mnist" if fashion else "digits"
    data: dict[str, Any] = {"clients": 10, "partition": "iid"}
    data |= {"rows": 10_000, "split": [0.8, 0.2, 0.0]} if fashion else {}
    own = {**OWN[options.method], "rounds": options.rounds + 2}
    if options.method == "realtime" and fashion:
        own["channels"] = [8, 8, 16, 16, 32, 32, 64, 64]
    with tempfile.TemporaryDirectory() as scratch:
        versions = []
        for side, python, more in (
            ("old", options.old / ".venv" / "bin" / "python", {}),
            ("new", Path(sys.executable), NEW.get(options.method, {})),
        ):
            given = {
                "method": options.method,
                "data": name if image or fashion else "wine",
                "out": str(Path(scratch) / side),
                "tables": {"data": data, "engine": {"workers": options.workers}},
                "own": {**own, **more},
            }
            versions.append(Version(side, python, given))
        try:
            for number in range(options.rounds + 1):
                for version in versions if number % 2 else reversed(versions):
                    version.round()
        finally:
            for version in versions:
                version.stop()
    print(f"{options.method} on {name}, {options.workers} workers, {options.rounds} rounds of each, alternating")
    for kind in ("wall", "processor"):
        old, new = ([one[kind] for one in version.rounds[1:]] for version in versions)
        ratios = [b / a for a, b in zip(old, new, strict=True)]
        print(
            f"{kind} seconds of a round: old {median(old):.3f}, new {median(new):.3f}; ratio of medians "
            f"{median(new) / median(old):.3f}, of single rounds {min(ratios):.2f} to {max(ratios):.2f}"
        )


if __name__ == "__main__":
    main()
