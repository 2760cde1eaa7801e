"""Whole runs in which pickle and its like raise: what is written and read cannot run code of others."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest
import torch

import atoll
from atoll.config import resolve
from atoll.errors import Paused
from atoll.run import launch
from atoll.run.reader import load
from atoll.testing import made_images, made_table
from methods.test_golden import IMAGES, SETTINGS

SHORT = "nevofed"
ENDINGS = {".toml", ".json", ".jsonl", ".safetensors", ".journal"}  # of every file of a run directory, but the lock
PICKLES = (
    (pickle, ("load", "loads", "dump", "dumps", "Pickler", "Unpickler")),
    (cloudpickle, ("dump", "dumps", "Pickler")),
    (torch, ("load", "save")),
)


@pytest.mark.parametrize(
    "method", [pytest.param(name, marks=[] if name == SHORT else pytest.mark.soak) for name in SETTINGS]
)
def test_a_run_is_stopped_resumed_and_read_without_pickle(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a journal. That no module names `marshal`, which imports need, or `dill` is for the import rules."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was pickled")

    for module, names in PICKLES:
        for name in names:
            old = getattr(module, name)  # a class stays one, because others may be made from it
            new = type(name, (old,), {"__init__": refuse}) if isinstance(old, type) else refuse
            monkeypatch.setattr(module, name, new)
    data: Any = made_images(**IMAGES[method]) if method in IMAGES else made_table()
    engine = {"workers": 0, "deadline": 1000.0}
    raw = {"method": method, "data": {"name": "in-memory"}, "engine": engine, method: SETTINGS[method]}
    path = tmp_path / "run"
    with pytest.raises(Paused):
        launch.start(resolve(raw), path, data=data, stop=lambda: bool(load(path).rounds))
    run = atoll.resume(path, data=data)
    assert run.finished
    run.model(run.recommended)
    assert {file.suffix for file in path.rglob("*") if file.is_file() and file.name != "lock"} <= ENDINGS
