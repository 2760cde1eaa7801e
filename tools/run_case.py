"""Run one small experiment on one version of Atoll and write what it gave as canonical JSON.

    python tools/run_case.py '{"side": "new", "root": ".", "method": "fedavg", "engine": "serial", "seed": 3,
                               "out": "/tmp/case"}'

The argument is a case or a list of cases. `out` must not exist. The run directory is `out/run`, the canonical results
are `out/case.json`. `compare_versions.py` starts this file once for each side and method, with that side's Python and
source on the path.

Everything that depends on the version is in the next section. When the new code renames something, add it to `NEW` or
to `KEYS`; the experiments below are written in the names of the old code.
"""

from __future__ import annotations

import csv
import hashlib
import importlib
import importlib.util
import json
import re
import struct
import sys
import threading
import tomllib
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# -- names that depend on the version ----------------------------------------------------------------------------------

OLD: dict[str, Any] = {
    "cli": "atoll.cli:main",
    "find_method": "atoll.methods:find_method",
    # Flower's grid has no command: these four start a run on it.
    "start": "atoll.launch:start",
    "resolve": "atoll.config:resolve",
    "node_app": "atoll.federation.flower_node:app",
    "sites": "sites",  # data.name of a run whose sites hold the data
    "site_file": 'name = "{name}"\nlink = "localhost:8443"\n\n[share]\nlabels = true\n',
    "grid_file": "thread_grid.py",  # looked for under tests/
    "grid_class": "ThreadGrid",
    "on_grid": None,  # makes of a grid what opens the engine; None: a run is given the grid itself
    "offers_file": "current.json",  # in models/
    # The following map names of the old code to those of this version. Names that are left out are the same.
    "tables": {},  # {"network": "simulation"}
    "methods": {},  # {"central": {"method": "fedavg", "settings": {"pooled": True}}}
    "settings": {},  # "METHOD.SETTING" or "TABLE.SETTING" -> the setting's name: {"decnas.judged": "measured"}
}
NEW: dict[str, Any] = {
    **OLD,
    "cli": "atoll.cli.app:main",
    "start": "atoll.run.launch:start",
    "node_app": None,  # a site's worker answers, here in this process
    "on_grid": "atoll.deploy.flower.engine:on_grid",
    "site_file": 'name = "{name}"\nserver = "localhost:8443"\n\n[share]\nlabels = true\n',
    "tables": {"network": "simulation"},
    "settings": {
        "nevofed.link_add": "connection_add",
        "nevofed.link_delete": "connection_delete",
        "nevofed.max_links": "max_connections",
        "realtime.offer": "snapshots",
        "decnas.offer": "snapshots",
        "netadapt.offer": "snapshots",
        "decnas.judged": "evaluated",
        "netadapt.judged": "evaluated",
    },
}

# Keys of events, results and checkpoints: old -> new. "SECTION:KEY" renames in one section of the canonical results
# only ("rounds:network"), "KEY" in all of them.
KEYS: dict[str, str] = {
    "state:network": "clock",
    "state:clock": "now",
    "climb": "ascent",
    "contenders": "candidates",
    "judged": "evaluated",
    "rounds:network": "simulation",
    "links": "connections",
    "link_ends": "connection_ends",
    "settings:offer": "snapshots",
    "settings:link_add": "connection_add",
    "settings:link_delete": "connection_delete",
    "settings:max_links": "max_connections",
    "strays": "unexpected_replies",
    "audit": "test_evaluation",
}

NAMES = {"old": OLD, "new": NEW}

# -- the experiments ---------------------------------------------------------------------------------------------------

# All values that a preset has are written out, so that a method that moves to another preset stays the same.
TABLE: dict[str, Any] = {"name": "wine", "clients": 4, "partition": "dirichlet:2.0"}
CANCER: dict[str, Any] = {"name": "breast_cancer", "clients": 4, "rows": 240, "partition": "iid"}
IMAGES: dict[str, Any] = {"name": "digits", "clients": 4, "rows": 240, "partition": "iid"}
TRAINING: dict[str, Any] = {"epochs": 2, "batch": 16, "lr": 0.1, "momentum": 0.5}
CONVNET: dict[str, Any] = {"model": "convnet", "widths": [4] * 6}
PRUNING: dict[str, Any] = {
    **CONVNET,
    "rounds": 5,
    "start_rounds": 1,
    "tune_rounds": [2],
    "epochs": 1,
    "batch": 16,
    "lr": 0.05,
    "step": 0.1,
    "step_decay": 0.98,
}
NETWORKS: dict[str, Any] = {
    "thin": {"space": "sparse", "model": "mlp", "hidden": [20], "epsilon": 3, "xi": 0.2, "lr": 0.2, "graph": 7},
    "full": {"space": "fixed", "model": "mlp", "hidden": [8]},
}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "realtime": {
        "data": IMAGES,
        "settings": {**TRAINING, "rounds": 3, "population": 2, "channels": [8, 16], "fraction": 0.75},
    },
    "offline": {
        "data": TABLE,
        "settings": {**TRAINING, "rounds": 4, "generations": 2, "population": 3, "widths": [6, 4]},
    },
    "decnas": {"data": {**IMAGES, "share_labels": True}, "settings": {**PRUNING, "groups": 2}},
    "netadapt": {
        "data": IMAGES,
        "settings": {**PRUNING, "grouping": False, "dropping": False, "dynamic_rounds": False},
    },
    "moefl": {
        "data": CANCER,
        "settings": {"rounds": 4, "fitness_rounds": 2, "population": 3, "epochs": 1, "batch": 16, "fraction": 0.75},
    },
    "fedrl": {
        "data": IMAGES,
        "settings": {
            "rounds": 5,
            "warmup": 2,
            "retrain": 1,
            "channels": 4,
            "cells": 2,
            "batch": 16,
            "lr": 0.1,
            "policy_lr": 0.1,
            "retrain_flip": 0.5,
        },
    },
    "fednas": {
        "data": {**IMAGES, "rows": 160},
        "settings": {
            "rounds": 2,
            "retrain": 1,
            "channels": 4,
            "cells": 1,
            "batch": 32,
            "lr": 0.1,
            "alpha_lr": 0.02,
            "fraction": 0.75,
        },
    },
    "nevofed": {"data": TABLE, "settings": {"rounds": 3, "population": 12, "fraction": 0.75}},
    "fedavg": {
        "data": IMAGES,
        "settings": {**TRAINING, **CONVNET, "rounds": 3, "fraction": 0.75, "decay": 0.9, "flip": 0.5, "crop": 1},
    },
    "central": {"data": CANCER, "settings": {**TRAINING, "rounds": 3, "hidden": [8]}},
    "retrain": {
        "data": TABLE,
        "settings": {**TRAINING, "rounds": 3, "networks": NETWORKS, "client_accuracy": True},
    },
    "retrain_central": {"data": TABLE, "settings": {**TRAINING, "rounds": 3, "networks": NETWORKS}},
}

VIRTUAL: dict[str, Any] = {"bandwidth": 50000.0, "speed": [1e7, 1e8], "latency": 0.05, "dropout": 0.15}
# Without a bandwidth, the virtual clock does not depend on the length of messages.
TIMED: dict[str, Any] = {"speed": [1e7, 1e8], "dropout": 0.15}
STALE: dict[str, Any] = {"staleness": [50, 30, 20], "staleness_after": 1}
ENGINES: dict[str, dict[str, Any]] = {
    "serial": {"engine": {"workers": 0}},
    "workers": {"engine": {"workers": 2}},
    "virtual": {"engine": {"workers": 0}, "network": VIRTUAL, "patience": 20},
    "timed": {"engine": {"workers": 0}, "network": TIMED, "patience": 20},
    "flower": {"engine": {"name": "flower", "wait": 240.0}},
}
LATE = ("fedrl",)  # the methods that take late replies
POOLED = "it needs all data in one place, and sites keep theirs"
SKIPPED: dict[tuple[str, str], str] = {
    ("central", "flower"): POOLED,
    ("netadapt", "flower"): POOLED,
    ("retrain_central", "flower"): POOLED,
}
SITES = ("north", "south", "west")
ROWS_OF_SITES = (50, 60, 55)


def tables(method: str, engine: str, seed: int) -> dict[str, Any]:
    """The experiment of a case, in the names of the old code."""
    experiment, reached = EXPERIMENTS[method], ENGINES[engine]
    raw = {"method": method, "preset": "small", "seed": seed, "data": experiment["data"], **reached}
    if "network" in raw and method in LATE:
        raw["network"] = {**raw["network"], **STALE}
    return {**raw, method: experiment["settings"]}


def renamed(raw: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """The same experiment in the names of a version."""
    method = raw["method"]
    instead = names["methods"].get(method, {"method": method, "settings": {}})
    found: dict[str, Any] = {}
    for key, value in raw.items():
        if isinstance(value, Mapping):
            value = {names["settings"].get(f"{key}.{name}", name): one for name, one in value.items()}
        if key == method:
            found[instead["method"]] = {**value, **instead["settings"]}
        else:
            found[names["tables"].get(key, key)] = instead["method"] if key == "method" else value
    return found


def toml(raw: Mapping[str, Any]) -> str:
    """An experiment file. Tables within tables are written inline."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in raw.items() if not isinstance(value, Mapping)]
    for key, table in raw.items():
        if isinstance(table, Mapping):
            lines += [f"[{key}]", *(f"{name} = {_toml_value(value)}" for name, value in table.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml_value(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    return json.dumps(value)


# -- running -----------------------------------------------------------------------------------------------------------


def named(path: str) -> Any:
    """The object at `module:name`."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def run_on_command_line(raw: Mapping[str, Any], names: Mapping[str, Any], out: Path) -> None:
    """`atoll run FILE`, in this process."""
    file = out / "experiment.toml"
    file.write_text(toml(renamed(raw, names)))
    sys.argv = ["atoll", "run", str(file), "--out", str(out / "run"), "--quiet"]
    try:
        named(names["cli"])()
    except SystemExit as end:
        if end.code not in (None, 0):
            raise RuntimeError(f"atoll run: exit code {end.code}") from None


def run_on_grid(raw: Mapping[str, Any], names: Mapping[str, Any], out: Path, root: Path) -> None:
    """Three sites with files of their own, on Flower's messages between threads."""
    from flwr.app import Context, RecordDict

    write_sites(out, raw["data"]["name"], names["site_file"])
    app, one_at_a_time = named(names["node_app"]) if names["node_app"] else answer_here, threading.Lock()

    def handler(name: str) -> Callable[[Any], Any]:
        own = out / "sites" / name
        config = {"name": name, "data": own / "data", "folder": own / "work", "site": own / "site.toml"}
        settings: dict[str, Any] = {key: str(value) for key, value in config.items()}

        def handle(message: Any) -> Any:
            with one_at_a_time:  # the threads share what a node's process would have for itself
                return app(message, Context(7, 0, settings, RecordDict(), {}))

        return handle

    grid = grid_class(root, names)()
    for name in SITES:
        grid.connect(handler(name))
    share = {key: raw["data"][key] for key in ("share_labels",) if key in raw["data"]}
    experiment = renamed({**raw, "data": {"name": names["sites"], "only": SITES, **share}}, names)
    try:
        opened = {"open_engine": named(names["on_grid"])(grid)} if names["on_grid"] else {"grid": grid}
        named(names["start"])(named(names["resolve"])(experiment), out / "run", **opened)
    finally:
        grid.close()


def answer_here(message: Any, context: Any) -> Any:
    """What the worker of a site answers."""
    from flwr.app import Message

    from atoll.deploy.flower.frames import content, frame_of
    from atoll.deploy.site import SiteNode
    from atoll.deploy.worker import site_of

    kind, frame = message.metadata.message_type.partition(".")[2], frame_of(message)
    assert frame is not None
    return Message(content(SiteNode(site_of(context.node_config)).answer(kind, frame)), reply_to=message)


def grid_class(root: Path, names: Mapping[str, Any]) -> Any:
    """The grid of threads, from the tests of this version."""
    found = sorted((root / "tests").rglob(names["grid_file"]))
    if len(found) != 1:
        raise RuntimeError(f"{root / 'tests'}: {len(found)} files are named {names['grid_file']}; there must be one")
    spec = importlib.util.spec_from_file_location("thread_grid", found[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["thread_grid"] = module
    spec.loader.exec_module(module)
    return getattr(module, names["grid_class"])


def write_sites(out: Path, data: str, site_file: str) -> None:
    """Rows of the data set for each site: an archive of images, or a CSV table."""
    import numpy as np
    from sklearn import datasets

    bunch = getattr(datasets, f"load_{data}")()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    start = 0
    for name, rows in zip(SITES, ROWS_OF_SITES, strict=True):
        own = out / "sites" / name
        (own / "data").mkdir(parents=True)
        (own / "site.toml").write_text(site_file.format(name=name))
        chosen, start = order[start : start + rows], start + rows
        if data == "digits":
            np.savez(own / "data" / "rows.npz", x=(bunch.images[chosen] * 15).astype(np.uint8), y=bunch.target[chosen])
            continue
        columns = [re.sub(r"\W+", "_", str(word)) for word in bunch.feature_names]
        with (own / "data" / "rows.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow([*columns, "label"])
            writer.writerows([*map(float, bunch.data[row]), f"class{bunch.target[row]}"] for row in chosen)


# -- canonical results -------------------------------------------------------------------------------------------------

LEFT_OUT = {"wall_seconds", "weights_file", "job", "method", "status"}  # times, places and names, not results
WORDS = {"failed", "error"}  # whose text may be worded differently; as numbers they are results


def canonical(run: Path, names: Mapping[str, Any], method: str) -> dict[str, Any]:
    """All that a run directory says, with digests in place of weights and arrays."""
    result = json.loads((run / "result.json").read_bytes())
    events = [json.loads(line) for line in (run / "events.jsonl").read_bytes().splitlines()]
    candidates = []
    for candidate in result.pop("candidates"):
        model = model_digests(run / candidate.pop("weights"))
        candidates.append({**candidate, "model": model})
    ledgers = [event.pop("ledger", None) for event in events]
    own = names["methods"].get(method, {"method": method})["method"]
    offers = run / "models" / names["offers_file"]
    offered = json.loads(offers.read_bytes())["models"] if offers.exists() else {}
    return {
        "result": plain({**result, "ledger": None}),
        "candidates": plain(candidates),
        "rounds": plain(events),
        "ledger": plain([*ledgers, result["ledger"]]),
        "offers": {pick: model_digests(run / "models" / file) for pick, file in offered.items()},
        "state": plain(last_state(run / "checkpoints")),
        "settings": plain(tomllib.loads((run / "config.toml").read_text())[own]),
    }


def plain(value: Any) -> Any:
    """A value without what is no result."""
    if isinstance(value, Mapping):
        return {
            key: "text" if key in WORDS and isinstance(one, str) else plain(one)
            for key, one in value.items()
            if key not in LEFT_OUT
        }
    return [plain(one) for one in value] if isinstance(value, list) else value


def model_digests(path: Path) -> dict[str, Any]:
    """The architecture of a model file and a digest of each of its tensors."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    about = json.loads(json.loads(data[8 : 8 + length])["__metadata__"]["atoll"])
    return {"about": about, "tensors": tensor_digests(path)}


def tensor_digests(path: Path) -> dict[str, str]:
    from safetensors.numpy import load

    found = {}
    for name, array in sorted(load(path.read_bytes()).items()):
        head = f"{array.dtype.str}{array.shape}".encode()
        found[name] = hashlib.sha256(head + array.tobytes()).hexdigest()[:24]
    return found


def last_state(folder: Path) -> Any:
    """The last checkpoint: the method's state, clients' memory, what is in flight, the virtual clock, the ledger."""
    document = json.loads(json.loads(max(folder.glob("*.json")).read_bytes())["text"])
    held: dict[str, str] = {}
    for pack in document["packs"]:
        held |= tensor_digests(folder / pack["file"])
    arrays, tensors = ([held[name] for name in document[kind]] for kind in ("arrays", "tensors"))

    def filled(tree: Any) -> Any:
        if isinstance(tree, dict):
            if isinstance(tree.get("$array"), int):
                return arrays[tree["$array"]]
            if isinstance(tree.get("$tensors"), dict):
                return {name: tensors[place] for name, place in tree["$tensors"].items()}
            return {key: filled(one) for key, one in tree.items()}
        return [filled(one) for one in tree] if isinstance(tree, list) else tree

    value = filled(document["tree"])["value"]
    federation = value["federation"]
    federation.pop("calls", None)  # the old code counts them on sites only
    if not federation.get("clock", True):  # real time: nothing to save
        del federation["clock"]
    return value


def run_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Run a case; its canonical results."""
    names, root, out = NAMES[case["side"]], Path(case["root"]).resolve(), Path(case["out"]).resolve()
    import atoll

    source = Path(str(atoll.__file__)).resolve()
    if not source.is_relative_to(root):
        raise RuntimeError(f"{source}: atoll was imported from there, not from {root}; set PYTHONPATH to its src")
    out.mkdir(parents=True)
    raw = tables(case["method"], case["engine"], case["seed"])
    if case["engine"] == "flower":
        run_on_grid(raw, names, out, root)
    else:
        run_on_command_line(raw, names, out)
    return canonical(out / "run", names, case["method"])


def main() -> None:
    """The cases of the first argument, one or a list of them. One that fails does not keep the others from running."""
    given = json.loads(sys.argv[1])
    failed = False
    for case in given if isinstance(given, list) else [given]:
        out = Path(case["out"])
        try:
            found = run_case(case)
        except Exception as problem:
            traceback.print_exc()
            out.mkdir(parents=True, exist_ok=True)
            (out / "failed.txt").write_text(f"{type(problem).__name__}: {problem}\n")
            failed = True
        else:
            (out / "case.json").write_text(json.dumps(found, sort_keys=True, indent=1) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
