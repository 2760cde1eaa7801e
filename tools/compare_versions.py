"""Run the same small experiments on two versions of Atoll and compare all that they give, to the bit.

    git worktree add ../old e7bad84 && make -C ../old install
    python tools/compare_versions.py --old ../old [--old-python P] [--methods realtime,fedavg]
                                     [--engines serial,workers,virtual,timed,flower] [--jobs 2] [--keep DIR]
    python tools/compare_versions.py --old ../old --self-test

The old version is a worktree with an environment of its own, the new one is this checkout with the Python that runs
this file. `run_case.py` runs the experiments and holds all names that differ between the versions.

Compared are: weights of every model (digests of each tensor), picks, objectives, architectures, the metrics of every
round, multiply-accumulates and other counts of the ledger, the virtual clock, the settings that were decided, and the
last checkpoint with the method's state and the clients' memory. Counts of bytes are a kind of their own, because the
heads of messages may change; where a link has a bandwidth, the virtual clock follows from them. `--allow-bytes` accepts
differences of that kind. Exit code: 0 all equal, 1 something differs or failed.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import run_case
from run_case import ENGINES, EXPERIMENTS, KEYS, SKIPPED

ROOT = Path(__file__).resolve().parent.parent
SEED = 3
PATIENCE = 900.0  # seconds for the cases of one method
SHOWN = 6  # differences of a case
BYTES = {"bytes_down", "bytes_up", "size", "genome_json_bytes"}
NAMED = {"id", "kind", "size"}  # of a task in flight: its name, the names of its reply checks, the size it declares
HELD = ("state", "federation", "holds", "sets")  # names of tensors by content: renamed keys inside a tensor change them
CLOCK = {"simulated_seconds", "now", "free", "journey", "sent", "from", "to"}
TIMED_SECTIONS = {"rounds", "ledger", "state"}  # of the canonical results
TIMES_OF_A_TASK = {"2", "3", "4", "5", "7"}  # places in a row of a round's timeline
LACKING = "(nothing)"

Found = dict[str, Any] | str  # canonical results, or why there are none
Differences = dict[str, list[str]]  # kind -> lines


def leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every plain value within a tree as text, with the place where it stands. Floats keep all their bits."""
    if isinstance(value, dict) and value:
        for key, one in value.items():
            yield from leaves(one, (*path, key))
    elif isinstance(value, list) and value:
        for number, one in enumerate(value):
            yield from leaves(one, (*path, str(number)))
    else:
        yield path, json.dumps(value)


def in_new_keys(value: Any, section: str) -> Any:
    """Results of the old version with the keys of the new one."""
    if isinstance(value, dict):
        # `network` is a table of the virtual network's times, and the name of a network in decnas' metrics.
        kept = {key for key, one in value.items() if key == "network" and not isinstance(one, dict)}
        return {
            key if key in kept else KEYS.get(f"{section}:{key}", KEYS.get(key, key)): in_new_keys(one, section)
            for key, one in value.items()
        }
    return [in_new_keys(one, section) for one in value] if isinstance(value, list) else value


def kind_of(path: tuple[str, ...]) -> str:
    """What a value is: `bytes`, `clock`, or the section that it stands in."""
    if path[-1] in BYTES or path[: len(HELD)] == HELD:
        return "bytes"
    if path[0] not in TIMED_SECTIONS:
        return path[0]
    row = path[0] == "rounds" and path[-3:-2] == ("tasks",) and path[-1] in TIMES_OF_A_TASK
    return "clock" if row or CLOCK.intersection(path[1:]) else path[0]


def differences(old: dict[str, Any], new: dict[str, Any]) -> Differences:
    """Where two results differ. Settings that only the new version has are not compared, nor the format number."""
    before = dict(leaves({section: in_new_keys(value, section) for section, value in old.items()}))
    after = dict(leaves(new))
    found: Differences = {}
    for path in [*before, *(path for path in after if path not in before)]:
        if (path[0] == "settings" and path not in before) or path == ("result", "schema"):
            continue
        if path[0] == "state" and "task" in path and NAMED.intersection(path[path.index("task") :]):
            continue
        one, other = before.get(path, LACKING), after.get(path, LACKING)
        if one != other:
            found.setdefault(kind_of(path), []).append(f"{'.'.join(path)}: {one} -> {other}")
    return found


class Side:
    """One version: its name, its checkout and its Python."""

    def __init__(self, name: str, root: Path, python: Path, seed: int = SEED) -> None:
        self.name, self.root, self.python, self.seed = name, root.resolve(), python, seed

    def run(self, method: str, engines: Sequence[str], folder: Path) -> dict[str, Found]:
        """The cases of one method, one after the other in one process: loading torch takes longer than most of them."""
        out = {engine: folder / self.name / f"{method}-{engine}" for engine in engines}
        cases = [
            {
                "side": self.name,
                "root": str(self.root),
                "method": method,
                "engine": engine,
                "seed": self.seed,
                "out": str(out[engine]),
            }
            for engine in engines
        ]
        environment = {**os.environ, "PYTHONPATH": str(self.root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [str(self.python), str(Path(run_case.__file__).resolve()), json.dumps(cases)]
        try:
            done = subprocess.run(
                command, env=environment, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False
            )
            why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        except subprocess.TimeoutExpired:
            why = f"no end after {PATIENCE:g} s"
        return {engine: self._read(path, why) for engine, path in out.items()}

    def _read(self, out: Path, why: str) -> Found:
        if (out / "case.json").exists():
            value: dict[str, Any] = json.loads((out / "case.json").read_bytes())
            return value
        return (out / "failed.txt").read_text().strip() if (out / "failed.txt").exists() else why


def compare(sides: Sequence[Side], methods: Sequence[str], engines: Sequence[str], jobs: int, folder: Path) -> Any:
    """(method, engine) -> the results of both sides, as soon as a method is done."""
    with ThreadPoolExecutor(jobs) as pool:
        waiting: dict[str, list[Future[dict[str, Found]]]] = {}
        for method in methods:
            own = [engine for engine in engines if (method, engine) not in SKIPPED]
            waiting[method] = [pool.submit(side.run, method, own, folder) for side in sides]
        for method, pair in waiting.items():
            old, new = (future.result() for future in pair)
            for engine in engines:
                reason = SKIPPED.get((method, engine))
                yield method, engine, None if reason else (old[engine], new[engine]), reason


def verdict(pair: tuple[Found, Found], bandwidth: bool, allow_bytes: bool) -> tuple[str, bool, list[str]]:
    """A word for the table, whether the case is accepted, and what there is to show."""
    failed = [
        f"{name}: {found}" for name, found in zip(("old", "new"), pair, strict=True) if not isinstance(found, dict)
    ]
    if failed:
        return "failed", False, failed
    old, new = pair
    assert isinstance(old, dict) and isinstance(new, dict)
    found = differences(old, new)
    values = sum(1 for _ in leaves(new))
    if not found:
        return f"equal ({values} values)", True, []
    excused = {"bytes", "clock"} if bandwidth and "bytes" in found else {"bytes"}
    word = ", ".join(f"{kind} {len(lines)}" for kind, lines in found.items())
    shown = [line for lines in found.values() for line in [*lines[:SHOWN], *(["..."] if len(lines) > SHOWN else [])]]
    return f"differs: {word}", allow_bytes and found.keys() <= excused, shown


def run_matrix(sides: Sequence[Side], options: argparse.Namespace, folder: Path) -> int:
    start, accepted, notes = time.monotonic(), True, []
    print("| method | engine | old and new |\n|---|---|---|")
    for method, engine, pair, reason in compare(sides, options.methods, options.engines, options.jobs, folder):
        if pair is None:
            print(f"| {method} | {engine} | skipped: {reason} |", flush=True)
            continue
        bandwidth = "bandwidth" in ENGINES[engine].get("network", {})
        word, ok, lines = verdict(pair, bandwidth, options.allow_bytes)
        accepted = accepted and ok
        print(f"| {method} | {engine} | {word} |", flush=True)
        notes += [f"\n{method}, {engine}:", *(f"  {line}" for line in lines)] if lines else []
    print("\n".join(notes))
    spent = os.times()
    computing = spent.children_user + spent.children_system
    word = "all equal" if accepted and not notes else "DIFFERENT"
    print(f"{word}; {time.monotonic() - start:.0f} s, {computing:.0f} s of processor time")
    return 0 if accepted else 1


def self_test(sides: Sequence[Side], options: argparse.Namespace, folder: Path) -> int:
    """With another seed on the new side every case must differ, and so must a result with one bit changed."""
    sides[1].seed += 1
    blind = []
    for method, engine, pair, _ in compare(sides, options.methods, options.engines[:1], options.jobs, folder):
        if pair is None:
            continue
        if not all(isinstance(found, dict) for found in pair):
            blind.append(f"{method}, {engine}: failed {pair}")
            continue
        kinds = differences(*pair)
        print(f"{method}, {engine}: {', '.join(f'{kind} {len(lines)}' for kind, lines in kinds.items())}", flush=True)
        if not {"candidates", "rounds", "state"} <= kinds.keys():
            blind.append(f"{method}, {engine}: another seed was not noticed in {sorted(kinds)}")
        nudged = json.loads(json.dumps(pair[0]))
        objectives = nudged["candidates"][0]["objectives"]
        name = next(iter(objectives))
        objectives[name] = math.nextafter(objectives[name], math.inf)
        if [*differences(pair[0], nudged)] != ["candidates"]:
            blind.append(f"{method}, {engine}: the last bit of objective {name} was not noticed")
    print("\n".join(blind) or "all differences were found")
    return 1 if blind else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--old", type=Path, required=True, help="the worktree of the old version")
    parser.add_argument("--old-python", type=Path, help="default: .venv/bin/python of that worktree")
    parser.add_argument("--methods", type=lambda text: text.split(","), default=list(EXPERIMENTS))
    parser.add_argument("--engines", type=lambda text: text.split(","), default=list(ENGINES))
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--keep", type=Path, help="a new folder for the run directories; default: they are removed")
    parser.add_argument("--allow-bytes", action="store_true", help="exit code 0 if only counts of bytes differ")
    parser.add_argument("--self-test", action="store_true", help="require that differences are found")
    options = parser.parse_args()
    for name, known in (("methods", EXPERIMENTS), ("engines", ENGINES)):
        unknown = [word for word in getattr(options, name) if word not in known]
        if unknown:
            parser.error(f"--{name} {unknown[0]}: unknown; known are {', '.join(known)}")
    python = options.old_python or options.old / ".venv" / "bin" / "python"
    sides = [Side("old", options.old, python.absolute()), Side("new", ROOT, Path(sys.executable))]
    folder = options.keep.resolve() if options.keep else Path(tempfile.mkdtemp(prefix="atoll-versions-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        return (self_test if options.self_test else run_matrix)(sides, options, folder)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
