"""Can someone who holds a delivered network tell whether a row was trained on? Loss threshold (Yeom et al. 2018).

    python experiments/privacy/membership.py RUN...

Members are training rows of the run's clients, the others are rows of the official test set, as many of each. The
attacker says "member" if the loss of a row is below a threshold, and gets the best threshold there is, so the advantage
(true positive rate minus false positive rate) is an upper bound for this attack. It is 0 for guessing and 1 for
certainty. Differential privacy bounds the advantage of every attack by the last column: (e^epsilon - 1 + 2 delta) /
(e^epsilon + 1). Runs that are not finished are named and left out.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional

from atoll.config import read_file, resolve
from atoll.data import load as load_data
from atoll.errors import AtollError
from atoll.run.reader import Run, load


def losses(run: Run, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    with torch.inference_mode():
        answers = run.model(run.recommended)(torch.tensor(x))
        return functional.cross_entropy(answers, torch.tensor(y), reduction="none").numpy()


def advantage(members: np.ndarray, others: np.ndarray) -> float:
    """The largest difference of the two distribution functions over all thresholds."""
    thresholds = np.sort(np.concatenate([members, others]))
    true = np.searchsorted(np.sort(members), thresholds, side="right") / len(members)
    false = np.searchsorted(np.sort(others), thresholds, side="right") / len(others)
    return float((true - false).max())


def bound(epsilon: float, delta: float) -> float:
    """The largest advantage that any attack can have."""
    return (math.exp(epsilon) - 1 + 2 * delta) / (math.exp(epsilon) + 1)


def attacked(run: Run) -> str:
    experiment = resolve(read_file(run.path / "config.toml"), complete=True)
    data = load_data(experiment.data, experiment.seed)
    clients, holders, _ = data.holders()
    inside = [data.client(name).part("train") for name in clients]
    outside = [data.client(name).part("test") for name in holders]
    members = losses(run, np.concatenate([x for x, _ in inside]), np.concatenate([y for _, y in inside]))
    others = losses(run, np.concatenate([x for x, _ in outside]), np.concatenate([y for _, y in outside]))
    members = members[:: max(1, len(members) // len(others))]
    epsilon = max((own["epsilon"] for own in run.result.get("privacy", {}).get("clients", {}).values()), default=None)
    limit = 1.0 if epsilon is None else bound(epsilon, run.result["privacy"]["delta"])
    test = run.candidate(run.recommended)["test"]["test_error"]
    spent = "none" if epsilon is None else f"{epsilon:.2f}"
    return f"{run.path.name:24s} {spent:>8s} {test:11.4f} {advantage(members, others):10.4f} {limit:7.4f}"


def main(names: Sequence[str]) -> None:
    try:
        runs = [load(Path(name)) for name in names]
    except AtollError as problem:
        sys.exit(str(problem))
    print(f"{'run':24s} {'epsilon':>8s} {'test error':>11s} {'advantage':>10s} {'bound':>7s}")
    for run in runs:
        if run.finished:
            print(attacked(run), flush=True)
        else:
            print(f"{run.path}: not finished, left out", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
