"""Runs federated averaging on scikit-learn's digits with an attack, without and with protection; prints test errors,
and the validation errors that the server was told.

Each file beside this one is one attack: `python examples/attacks/flip.py`. A run takes a few seconds.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import atoll

CLIENTS, ROUNDS, SEEDS = 20, 15, (1, 2, 3)
PLAIN: dict[str, Any] = {"client_weights": "rows", "strikes": 0}
ROBUST: dict[str, Any] = {"models": "trimmed_mean", "trim": 0.25, "clip": 2.0, "fitness": "median"}


def errors(
    robust: dict[str, Any], rules: list[dict[str, Any]], seed: int, workers: int, engine: dict[str, Any]
) -> tuple[float, float, int]:
    """Test error and told error of the recommended network, and how many replies were rejected."""
    settings: dict[str, Any] = {"robust": robust, "data": {"clients": CLIENTS}, "engine": engine}
    if rules:
        settings["faults"] = {"rule": rules}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        run = atoll.search("fedavg", "digits", out=out, rounds=ROUNDS, seed=seed, workers=workers, settings=settings)
        rejected = sum(event["ledger"]["replies"]["rejected"] for event in run.rounds)
        found = run.candidate("high")
        return found["test"]["test_error"], found["objectives"]["error"], rejected


def compare(title: str, *rules: dict[str, Any], workers: int = 0, **engine: Any) -> None:
    """Run the four cases with these rules. `engine`: settings of its table, such as a quorum, in all of them."""
    print(f"{title}: {CLIENTS} clients, {ROUNDS} rounds, seeds {SEEDS}")
    cases = {
        "no attack, mean": (PLAIN, []),
        "no attack, robust": (ROBUST, []),
        "attack, mean": (PLAIN, list(rules)),
        "attack, robust": (ROBUST, list(rules)),
    }
    for name, (robust, found) in cases.items():
        results = [errors(robust, found, seed, workers, engine) for seed in SEEDS]
        test, told, rejected = zip(*results, strict=True)
        print(f"  {name:18} test error {_listed(test)}; told {_listed(told)}; rejected replies {rejected}")
        sys.stdout.flush()


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.3f}" for value in values)
