"""Model files: complete, named by content, and never believed when changed."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atoll.core.messages import Tensors
from atoll.errors import RunDamaged
from atoll.preparation.value import of_table
from atoll.rng import stream
from atoll.store.models import Model, load_model, save_model
from refusals import refused

MODEL = Model(
    {"space": "fixed", "model": "mlp", "input": [2], "classes": 2, "hidden": [3]},
    Tensors({"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(1.5)}),
    Tensors({"norm.count": np.array([4.0])}),
    of_table(["höhe", "größe"], ["no", "yes, <b>really</b>"]),
)


def test_round_trip(tmp_path: Path) -> None:
    again = load_model(tmp_path / save_model(tmp_path, MODEL))
    assert again.architecture == MODEL.architecture and again.preparation == MODEL.preparation
    for name in ("weights", "statistics"):
        before, after = getattr(MODEL, name), getattr(again, name)
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[key], after[key]) and before[key].shape == after[key].shape for key in before)


def test_the_name_is_the_content(tmp_path: Path) -> None:
    assert save_model(tmp_path, MODEL) == save_model(tmp_path, MODEL)
    assert len(list(tmp_path.iterdir())) == 1
    other = Model(MODEL.architecture, MODEL.weights, Tensors({}), MODEL.preparation)
    assert save_model(tmp_path, other) != save_model(tmp_path, MODEL)


def test_a_damaged_file_is_written_anew(tmp_path: Path) -> None:
    name = save_model(tmp_path, MODEL)
    (tmp_path / name).write_bytes(b"damaged")
    assert save_model(tmp_path, MODEL) == name
    load_model(tmp_path / name)


def test_every_change_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / save_model(tmp_path, MODEL)
    data = path.read_bytes()
    rng = stream(1, "tamper")
    for place in rng.integers(0, 8 * len(data), 60):
        changed = bytearray(data)
        changed[place // 8] ^= 1 << int(place % 8)
        path.write_bytes(changed)
        with refused(RunDamaged, "wrong-checksum", path):
            load_model(path)
    for cut in (b"", data[:-1], data + b"x"):
        path.write_bytes(cut)
        with refused(RunDamaged, "wrong-checksum", path):
            load_model(path)


def test_a_foreign_file_under_a_right_name_is_refused(tmp_path: Path) -> None:
    from hashlib import sha256

    from safetensors.numpy import save

    for data in (b"", b"12345678", save({"a": np.zeros(1)}), save({"a": np.zeros(1)}, {"atoll": "[]"})):
        path = tmp_path / f"{sha256(data).hexdigest()[:32]}.safetensors"
        path.write_bytes(data)
        with refused(RunDamaged, "not-a-model", path):
            load_model(path)
