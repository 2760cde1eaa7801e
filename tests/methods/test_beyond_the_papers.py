"""What goes beyond a paper is a setting: off in preset `paper`, on in `small` where it is usual, told in papers.md."""

from __future__ import annotations

import re
from typing import Any

import pytest

from atoll.config import resolve
from atoll.core.messages import Payload, Task
from atoll.methods import find_method
from atoll.methods.moefl.search import Moefl
from atoll.methods.moefl.settings import MoeflConfig
from atoll.methods.offline import Offline, OfflineConfig, OfflineState
from atoll.rng import stream
from atoll.testing import ScriptedFederation
from methods.two_blocks import SCHEMA, Script, client, realtime, state, step
from scripts import ROOT

REGULARISERS = {"weight_decay": 0.0, "prox": 0.0, "clip": None, "crop": 0, "flip": 0.0, "cutout": 0}
TRAINED: dict[str, Any] = REGULARISERS | {"server_momentum": 0.0, "objective": "error", "search": "evolution"}
CHOICE: dict[str, Any] = TRAINED | {"max_macs": None, "objectives": ["error", "macs"], "norm": "batch"}
# Each method's section of docs/papers.md, the settings beyond its paper with their values in preset `paper`, and in
# `small` the values of those that are on.
BEYOND: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "realtime": (
        "realtime",
        CHOICE | {"average": "all", "paths": "offspring", "finish": 0.0, "finish_networks": "picks", "finish_lr": None},
        {"average": "trained", "finish": 0.4},
    ),
    "offline": ("realtime", CHOICE | {"schedule": "decay"}, {"schedule": "cosine"}),
    "moefl": (
        "moefl",
        TRAINED
        | {"finish": 0.0, "finish_networks": "picks", "max_connections": None, "max_error": None, "crowding": "linear"}
        | {"halving": False, "inherit": False},
        {"finish": 0.33, "max_connections": "standard", "crowding": "log"},
    ),
    "fedrl": (
        "fedrl",
        {"compensation_rule": "constant", "reward_rows": None, "choice": 0, "objective": "error"},
        {"compensation_rule": "adaptive"},
    ),
    "nevofed": (
        "nevofed",
        {"keep": "last", "patience": 0, "refine": 0.0, "polish": 0.0},
        {"keep": "best", "patience": 4, "refine": 0.4, "polish": 0.3},
    ),
}


@pytest.mark.parametrize("method", BEYOND)
def test_off_in_paper_on_in_small_and_told(method: str) -> None:
    head, off, usual = BEYOND[method]
    for preset, wanted in (("paper", off), ("small", off | usual)):
        settings: Any = resolve({"method": method, "preset": preset, "data": {"name": "digits"}}).settings
        assert {name: getattr(settings, name) for name in wanted} == wanted
        assert [name for name, value in usual.items() if value == off[name]] == []
    text = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    found = re.search(rf"^## {head}\n(.*?)(?:^## |\Z)", text, re.S | re.M)
    assert found is not None
    told = set(re.findall(r"`(\w+)(?: = [^`]*)?`", found[1]))
    parts = [name for name in find_method(method).Config.model_fields if re.match("(refine|polish|finish)", name)]
    assert [name for name in (*off, *parts) if name not in told] == []


# -- regularisers come from the client work that all methods share -----------------------------------------------------

ON: dict[str, Any] = {"weight_decay": 0.01, "prox": 0.1, "clip": 2.0, "flip": 0.5}
SENT = {"weight_decay": 0.01, "prox": 0.1, "clip": 2.0, "augmentation": {"crop": 0, "flip": 0.5, "cutout": 0}}


def trained(method: str, settings: dict[str, Any]) -> list[Task]:
    """The training tasks of a round of the search, and of one of the training at its end."""
    if method == "moefl":
        own = MoeflConfig(rounds=2, fitness_rounds=1, finish=0.5, population=2, **settings)
        names, schema = ["a", "b"], SCHEMA

        def answer(task: Task) -> Payload:
            return {"correct": 5} if "part" in task.payload else {"weights": task.payload["weights"]}

        federation = ScriptedFederation(names, answer, schema)
        moefl = Moefl(own, schema)
        now, phases = moefl.init(federation, stream(1, "init")), []
        while not moefl.done(now):
            federation.begin(now.round + 1)
            now, metrics = moefl.step(now, federation, stream(1, "step", now.round))
            phases.append(metrics.get("phase"))
        assert phases == [None, "final"]
        return [task for task in federation.tasks if task.job.endswith(":train")]
    script = Script([client("a"), client("b")])
    if method == "offline":
        own_settings = {"rounds": 2, "generations": 1, "population": 2, "widths": [2, 2], "stem": 2, **settings}
        offline = Offline(OfflineConfig(**own_settings), SCHEMA)
        then = OfflineState(0, [[1, 1], [0, 1]], [], {})
        for number in (1, 2):
            script.begin(number)
            then, _ = offline.step(then, script, stream(7, "test", number))
        assert then.trained
        return script.sent("train")
    searching = realtime(rounds=2, finish=0.5, **settings)
    after, _ = step(searching, state(searching, [[1, 1], [0, 1]]), script)
    after, metrics = step(searching, after, script)
    assert metrics["phase"] == "final"
    return script.sent("train")


@pytest.mark.parametrize("method", ["realtime", "offline", "moefl"])
def test_regularisers_reach_the_clients_in_every_phase(method: str) -> None:
    tasks = trained(method, ON)
    assert len(tasks) > 4 and all(SENT.items() <= task.payload.items() for task in tasks)
    # A setting that is off leaves no byte behind; a weight decay of zero may.
    assert not any((SENT.keys() - {"weight_decay"}) & task.payload.keys() for task in trained(method, {}))
