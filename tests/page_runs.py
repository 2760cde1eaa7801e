"""Complete run directories written by hand: everything that a page shows, without training anything."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from atoll.core.ledger import Account
from atoll.methods import find_method
from atoll.run.reader import Run, load

CHOICE = {"space": "choice", "input": [1, 8, 8], "classes": 3, "channels": [4, 8], "stem": 4, "expansion": 2}
FIXED = {"space": "fixed", "model": "mlp", "input": [6], "classes": 3, "hidden": [5]}
SPARSE = {**FIXED, "space": "sparse", "epsilon": 3, "graph": 7, "xi": 0.2, "lr": 0.1}
CELL = [["sep_conv_3x3", 0], ["skip_connect", 1], ["max_pool_3x3", 0], ["dil_conv_5x5", 2]] * 2
DARTS = {
    "space": "darts",
    "form": "genotype",
    "input": [1, 8, 8],
    "classes": 3,
    "cells": 3,
    "channels": 4,
    "genotype": {"normal": CELL, "reduce": CELL},
}
NAMES = ("north", "south", "west")
CLASSES = ("calm", "busy", "odd")


def ledger(scale: int = 1, tasks: int = 6, failed: int = 0, seconds: float = 0.0) -> dict[str, Any]:
    account = Account(tasks, bytes_down=3000 * scale, bytes_up=1000 * scale, client_macs=50_000 * scale)
    account.replies |= {"used": tasks - failed, "failed": failed}
    account.simulated_seconds = seconds
    return dict(vars(account))


def event(number: int, metrics: Mapping[str, Any], clients: Sequence[str] = NAMES, **more: Any) -> dict[str, Any]:
    """The event of a round in which each client answered two tasks."""
    own = {name: {"rounds": 1, "asked": 2, "used": 2} for name in clients}
    plain = {
        "round": number,
        "metrics": dict(metrics),
        "ledger": ledger(),
        "wall_seconds": 0.5 * number,
        "clients": own,
    }
    return plain | more


def front_metrics(number: int) -> dict[str, Any]:
    """A front of three networks that gets better with the rounds; High is the first, Knee the second."""
    error = 0.1 + 0.5 / number
    front = [["30", error, 9000.0], ["21", error + 0.05, 4000.0], ["00", error + 0.2, 1000.0]]
    high = {"key": "30", "error": error, "macs": 9000, "test_error": error + 0.01}
    knee = {"key": "21", "error": error + 0.05, "macs": 4000}
    return {"error": error, "hypervolume": 1 - error, "front": front, "high": high, "knee": knee}


def metrics_of(kind: str, number: int) -> dict[str, Any]:
    """What a round of a method of this kind reports."""
    error = 0.1 + 0.5 / number
    if kind == "front":
        return front_metrics(number)
    if kind == "policy":
        phase = "warmup" if number <= 2 else "search" if number <= 4 else "final"
        shared = {"phase": phase, "accuracy": 1 - error, "moving_accuracy": 1 - error, "error": error}
        return shared | {"entropy": 2.0 - 0.1 * number, "skip_share": 0.25, "skip_expected": 0.125}
    if kind == "pruning":
        candidates = {"0.0": {"accuracy": 0.8}, "1.0": {"accuracy": 0.7}}
        base: dict[str, Any] = {
            "phase": "search",
            "iteration": (number + 1) // 2,
            "round_in_iteration": 1 + (number + 1) % 2,
        }
        base |= {"candidates": candidates, "error": error}
        ended = {
            "chosen": "0.0",
            "layer": "conv 1",
            "network": f"m{number}",
            "resources": {"macs": 9000 - 500 * number},
            "test_error": error,
        }
        return base | (ended if number % 2 == 0 else {})
    if kind == "networks":
        own = {name: {"accuracy": 1 - error, "test_accuracy": 1 - error, "connections": 40} for name in ("a", "b")}
        return {"error": error, "networks": own}
    return {"error": error, "test_error": error + 0.01, "loss": 3 * error}


def candidate(
    name: str, architecture: Mapping[str, Any], picks: Sequence[str], clients: Sequence[str] = NAMES, **more: Any
) -> dict[str, Any]:
    """A network with test metrics: 30 rows of three classes, six of them wrong."""
    confusion = [[8, 1, 1], [1, 8, 1], [1, 1, 8]]
    measured = {"test_error": 0.2, "test_f1": 0.8, "test_rows": 30, "baseline_error": 0.66, "confusion": confusion}
    own = {client: {**measured, "test_rows": 10} for client in clients}
    objectives = {"error": 0.18, "test_error": 0.2, "macs": 4000, "params": 58, "upload_bytes": 232}
    entry = {
        "id": name,
        "architecture": dict(architecture),
        "objectives": objectives,
        "picks": list(picks),
        "weights": "",
    }
    return entry | {"test": measured, "clients": own} | more


def write_run(
    folder: Path,
    method: str = "realtime",
    rounds: int = 6,
    *,
    candidates: Sequence[Mapping[str, Any]] | None = None,
    clients: Sequence[str] = NAMES,
    classes: Sequence[str] = CLASSES,
    settings: str = "",
    config: str = "",
    events: Sequence[Mapping[str, Any]] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> Run:
    """A run; with candidates it is finished."""
    folder.mkdir(parents=True)
    found = find_method(method)
    (folder / "config.toml").write_text(
        f'method = "{method}"\nseed = 1\n{config}\n[{method}]\nrounds = {rounds}\n{settings}\n'
    )
    about = {
        "schema": 3,
        "method": method,
        "metrics_kind": found.metrics_kind,
        "recommended": found.recommended,
        "centralised": found.centralised,
        "source": "made",
        "seed": 1,
        "versions": {"atoll": "0.1.0"},
        "data": {"clients": len(clients), "rows": 90, "digest": "0" * 64},
        "clients": {name: {"train": 20, "validation": 5, "test": 5} for name in clients},
        "created": "2026-01-02T03:04:05+00:00",
        "run": "f" * 32,
    }
    (folder / "manifest.json").write_text(json.dumps(about | dict(manifest or {})))
    (folder / "preparation.json").write_text(json.dumps({"classes": list(classes)}))
    known = list(events) if events is not None else list(made_events(found.metrics_kind, rounds, clients))
    (folder / "events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in known))
    if candidates is not None:
        (folder / "result.json").write_text(json.dumps(result(method, rounds, candidates, clients)))
    return load(folder)


def made_events(kind: str, rounds: int, clients: Sequence[str] = NAMES) -> Iterator[dict[str, Any]]:
    for number in range(1, rounds + 1):
        yield event(number, metrics_of(kind, number), clients)


def result(
    method: str, rounds: int, candidates: Sequence[Mapping[str, Any]], clients: Sequence[str] = NAMES
) -> dict[str, Any]:
    total = {"rounds": rounds, **ledger(rounds, 6 * rounds)}
    accounts = {name: {"asked": 2 * rounds, "used": 2 * rounds, "rounds": rounds, "idle": 0} for name in clients}
    return {
        "schema": 3,
        "method": method,
        "status": "finished",
        "stopped": None,
        "seed": 1,
        "rounds": rounds,
        "planned_rounds": rounds,
        "wall_seconds": 0.5 * rounds,
        "hypervolume": None,
        "candidates": [dict(one) for one in candidates],
        "ledger": total,
        "clients": accounts,
    }


def searched(folder: Path, **more: Any) -> Run:
    """A finished real-time search with High and Knee."""
    high = candidate("30", {**CHOICE, "key": [3, 0]}, ["high"])
    knee = candidate("21", {**CHOICE, "key": [2, 1]}, ["knee"])
    return write_run(
        folder, "realtime", candidates=[high, knee], settings="channels = [4, 8]\nepochs = 1\nfraction = 1.0", **more
    )


def simulated_tasks(rounds: int, clients: Sequence[str] = NAMES) -> list[dict[str, Any]]:
    """Events of a run on a virtual network: each round takes ten seconds, one client never answers."""
    found = []
    for number in range(1, rounds + 1):
        start = 10.0 * (number - 1)
        tasks = [
            [name, number, start, start + 1, start + 4, start + 6 + place, "used"]
            for place, name in enumerate(clients[:-1])
        ]
        tasks.append([clients[-1], number, start, None, None, start + 10, "failed"])
        own = {name: {"rounds": 1, "asked": 1, "used": 1} for name in clients[:-1]}
        own[clients[-1]] = {"rounds": 1, "asked": 1, "failed": {"no reply": 1}}
        times = {"from": start, "to": start + 10.0, "tasks": tasks}
        costs = ledger(1, len(clients), 1, 10.0)
        metrics = {"error": 0.1 + 0.5 / number}
        found.append(event(number, metrics, clients) | {"ledger": costs, "clients": own, "simulation": times})
    return found
