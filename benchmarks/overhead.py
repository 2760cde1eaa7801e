"""What a round costs on each engine beyond its arithmetic: the same FedAvg on three clients, local, Ray and Flower.

    python benchmarks/overhead.py [--rounds 5] [--engines local,ray,flower]

Seconds of a round, median, first round left out. Flower is a real federation on this machine (link, proxy, three nodes,
TLS and keys; needs nginx). All engines must give the same weights.
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
from itertools import pairwise
from pathlib import Path

ATOLL = [sys.executable, "-c", "from atoll.cli.app import main; main()"]
SITES = ("north", "south", "west")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--engines", default="local,ray,flower")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        atoll("datasets", "export", "breast_cancer", "--names", ",".join(SITES), "--out", "hospitals")
        digests = {}
        for engine in given.engines.split(","):
            {"local": local, "ray": ray, "flower": flower}[engine](given.rounds)
            events = Path(engine, "events.jsonl").read_text().splitlines()
            seconds = [json.loads(line)["wall_seconds"] for line in events]
            rounds = [after - before for before, after in pairwise(seconds)]
            print(f"{engine:>8}  {statistics.median(rounds):8.3f} s a round", flush=True)
            found = json.loads(Path(engine, "result.json").read_text())["candidates"][0]
            digests[engine] = found["weights"]
    print("the same weights on all of them" if len(set(digests.values())) == 1 else f"DIFFERENT: {digests}")


def local(rounds: int) -> None:
    search("local", rounds, "--data", "hospitals", "--workers", "2")


def ray(rounds: int) -> None:
    search("ray", rounds, "--data", "hospitals", "--workers", "2", "--engine", "ray")


def flower(rounds: int) -> None:
    atoll("federation", "init", "federation", "--sites", ",".join(SITES), "--host", "localhost")
    background = [start("federation", "server", "federation")]
    try:
        for site in SITES:
            bundle, data = f"federation/bundles/{site}", f"hospitals/{site}.csv"
            background.append(start("site", "join", bundle, "--data", data, "--yes"))
        atoll("federation", "status", "federation", "--wait", "300")
        search("flower", rounds, "--federation", "federation")
    finally:
        for process in reversed(background):
            process.send_signal(signal.SIGTERM)
        for process in background:
            process.wait(60)
        time.sleep(1)


def search(out: str, rounds: int, *options: str) -> None:
    atoll("run", "fedavg", *options, "--rounds", str(rounds), "--out", out, "--quiet", "--set", "fedavg.hidden=[16]")


def atoll(*words: str) -> None:
    subprocess.run([*ATOLL, *words], check=True, stdout=subprocess.DEVNULL)


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*ATOLL, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
