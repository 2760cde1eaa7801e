"""Flipped updates on MNIST: 50 clients, a fifth of which sends five times the opposite update; clean, plain and robust.

    ATOLL_DATA=FOLDER python experiments/fedavg/attack.py [--rounds 20] [--seeds 1,2,3] [--workers 1] [--cases NAME ...]

FedAvg, MLP 784-200-200-10, 60,000 training images distributed at random, one local epoch, batch 50, learning rate 0.1.
Prints the test error in percent of the official 10,000 test images, a line a case and the gap to the clean mean.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import atoll

ROBUST: dict[str, Any] = {"models": "trimmed_mean", "trim": 0.25, "clip": 2.0}
ATTACK: dict[str, Any] = {"rule": [{"kind": "flip", "clients": 0.2, "factor": 5.0}]}
CASES: dict[str, dict[str, Any]] = {
    "clean, mean": {},
    "clean, robust": {"robust": ROBUST},
    "attack, mean": {"faults": ATTACK},
    "attack, robust": {"robust": ROBUST, "faults": ATTACK},
}


def test_error(case: dict[str, Any], rounds: int, seed: int, workers: int) -> float:
    data = {"clients": 50, "partition": "iid", "split": [1.0, 0.0, 0.0]}
    network: dict[str, Any] = {"model": "mlp", "hidden": [200, 200], "epochs": 1, "batch": 50, "lr": 0.1}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = atoll.search(
            "fedavg",
            "mnist",
            out=out,
            rounds=rounds,
            seed=seed,
            workers=workers,
            settings={"data": data, **case},
            **network,
        )
        return 100.0 * float(run.candidate("high")["test"]["test_error"])


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rounds", type=int, default=20)
    options.add_argument("--seeds", default="1,2,3")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="gaps are to the first of them")
    given = options.parse_args()
    clean: list[float] = []
    for name, case in ((name, CASES[name]) for name in given.cases):
        errors = [test_error(case, given.rounds, int(seed), given.workers) for seed in given.seeds.split(",")]
        clean = clean or errors
        gaps = [error - before for error, before in zip(errors, clean, strict=True)]
        shown = ", ".join(f"{error:.2f}" for error in errors)
        print(f"{name:15} {shown}; mean gap {statistics.mean(gaps):+.2f}, largest {max(gaps):+.2f} points", flush=True)


if __name__ == "__main__":
    main()
