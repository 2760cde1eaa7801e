"""Runs federated averaging on scikit-learn's digits with an attack, without and with protection; prints test errors.

Each file beside this one is one attack: `python examples/attacks/flip.py`. A run takes a few seconds.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import atoll

CLIENTS, ROUNDS, SEEDS = 20, 15, (1, 2)
PLAIN: dict[str, Any] = {"client_weights": "rows", "strikes": 0}
ROBUST: dict[str, Any] = {"models": "trimmed_mean", "trim": 0.25, "clip": 2.0, "fitness": "median"}


def test_error(robust: dict[str, Any], rules: list[dict[str, Any]], seed: int, workers: int) -> tuple[float, int]:
    """The test error of the recommended network, and how many replies were rejected."""
    settings: dict[str, Any] = {"robust": robust, "data": {"clients": CLIENTS}}
    if rules:
        settings["faults"] = {"rule": rules}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = atoll.search("fedavg", "digits", out=out, rounds=ROUNDS, seed=seed, workers=workers, settings=settings)
        rejected = sum(event["ledger"]["replies"]["rejected"] for event in run.rounds)
        return run.candidate("high")["test"]["test_error"], rejected


def compare(title: str, *rules: dict[str, Any], workers: int = 0) -> None:
    print(f"{title}: {CLIENTS} clients, {ROUNDS} rounds, seeds {SEEDS}")
    cases = {
        "no attack, mean": (PLAIN, []),
        "no attack, robust": (ROBUST, []),
        "attack, mean": (PLAIN, list(rules)),
        "attack, robust": (ROBUST, list(rules)),
    }
    for name, (robust, found) in cases.items():
        results = [test_error(robust, found, seed, workers) for seed in SEEDS]
        errors = ", ".join(f"{error:.3f}" for error, _ in results)
        print(f"  {name:18} test error {errors}; rejected replies {', '.join(str(number) for _, number in results)}")
        sys.stdout.flush()
