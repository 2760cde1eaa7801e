"""Checkpoints: what was saved comes back, what was saved already is not saved again, and damage is noticed."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.core.messages import Tensors
from atoll.errors import RunDamaged
from atoll.rng import stream
from atoll.store.checkpoints import Checkpoints
from refusals import refused

BIG = Tensors({"big": np.arange(50_000, dtype=np.float32)})


def value(number: int) -> dict[str, Any]:
    """Something new in each round beside something that stays."""
    own = Tensors({"own": np.full(10, number, np.float32)})
    return {"round": number, "master": BIG, "own": own, "array": np.arange(number), "loss": float("nan"), "none": None}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def assert_is(found: tuple[int, dict[str, Any]] | None, number: int) -> None:
    assert found is not None and found[0] == number == found[1]["round"]
    assert np.array_equal(found[1]["master"]["big"], BIG["big"])
    assert np.array_equal(found[1]["own"]["own"], np.full(10, number, np.float32))
    assert np.array_equal(found[1]["array"], np.arange(number)) and np.isnan(found[1]["loss"])


def test_nothing_was_written_yet(tmp_path: Path) -> None:
    assert Checkpoints(tmp_path / "c").read() is None


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    Checkpoints(tmp_path).write(3, value(3))
    assert_is(Checkpoints(tmp_path).read(), 3)


def test_unchanged_arrays_are_written_once(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    packs = set(tmp_path.glob("*.safetensors"))
    assert sum(path.stat().st_size for path in packs) > BIG.nbytes
    checkpoints.write(2, value(2))
    (fresh,) = set(tmp_path.glob("*.safetensors")) - packs
    assert fresh.stat().st_size < 1000
    again = Checkpoints(tmp_path)  # and after a restart
    assert_is(again.read(), 2)
    again.write(3, value(3))
    assert sum(path.stat().st_size for path in tmp_path.glob("*.safetensors")) < BIG.nbytes + 5000
    assert_is(Checkpoints(tmp_path).read(), 3)


def test_two_are_kept_with_the_packs_they_need(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for number in range(1, 8):
        checkpoints.write(number, value(number))
    assert {name for name in names(tmp_path) if name.endswith(".json")} == {"00000006.json", "00000007.json"}
    assert len(list(tmp_path.glob("*.safetensors"))) == 3  # the big one, and what is new in 6 and 7


def test_a_number_may_be_written_again_with_other_values(tmp_path: Path) -> None:
    """A pause saves the round it began with a second time; the first pack may still be needed."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    changed = {**value(1), "own": Tensors({"own": np.full(10, 9, np.float32)})}
    checkpoints.write(1, changed)
    found = Checkpoints(tmp_path).read()
    assert found is not None and found[1]["own"]["own"][0] == 9
    assert np.array_equal(found[1]["master"]["big"], BIG["big"])


@pytest.mark.parametrize("victim", ["00000002.json", "pack"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "delete", "junk"])
def test_a_damaged_newest_falls_back_to_the_one_before(tmp_path: Path, victim: str, damage: str) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    before = names(tmp_path)
    checkpoints.write(2, value(2))
    (pack,) = (name for name in names(tmp_path) - before if name.endswith(".safetensors"))
    hurt(tmp_path / (pack if victim == "pack" else victim), damage)
    again = Checkpoints(tmp_path)
    assert_is(again.read(), 1)
    again.write(3, value(3))  # the damaged one does not count among the two that are kept
    assert {name for name in names(tmp_path) if name.endswith(".json")} == {"00000001.json", "00000003.json"}
    assert_is(Checkpoints(tmp_path).read(), 3)


def hurt(path: Path, damage: str) -> None:
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 4
    changed = {"cut": data[:-1], "empty": b"", "junk": b'{"sha256": 5, "text": 6}', "flip": data}
    if damage == "delete":
        path.unlink()
    else:
        path.write_bytes(changed[damage])


def test_all_damaged_is_said(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    checkpoints.write(2, value(2))
    for path in tmp_path.glob("*.json"):
        hurt(path, "flip")
    with refused(RunDamaged, "no-intact-checkpoint", tmp_path, "00000002.json", "00000001.json"):
        Checkpoints(tmp_path).read()


def test_a_shared_pack_that_is_damaged_takes_both_with_it(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    checkpoints.write(2, value(2))
    shared = max(tmp_path.glob("*.safetensors"), key=lambda path: path.stat().st_size)
    hurt(shared, "flip")
    with refused(RunDamaged, "no-intact-checkpoint", shared.name):
        Checkpoints(tmp_path).read()


def test_every_random_corruption_is_noticed(tmp_path: Path) -> None:
    """200 flipped bits, in any file: what is read is what was written, in round 2 or in round 1, or it is refused."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    checkpoints.write(2, value(2))
    rng = stream(1, "corruption")
    files = sorted(tmp_path.iterdir())
    for _ in range(200):
        path = files[int(rng.integers(len(files)))]
        data = path.read_bytes()
        place = int(rng.integers(8 * len(data)))
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            found = Checkpoints(tmp_path).read()
        except RunDamaged:
            pass
        else:
            assert found is not None and (found[0] == 1 or path.name != "00000002.json")
            assert_is(found, found[0])
        path.write_bytes(data)


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.write(1, value(1))
    document = tmp_path / "00000001.json"
    text = json.loads(document.read_text())["text"].replace('"schema":1', '"schema":2')
    document.write_text(json.dumps({"sha256": sha256(text.encode()).hexdigest(), "text": text}))
    with refused(RunDamaged, "no-intact-checkpoint", "schema 2"):
        Checkpoints(tmp_path).read()


def test_what_a_kill_left_half_written_is_swept(tmp_path: Path) -> None:
    Checkpoints(tmp_path).write(1, value(1))
    (tmp_path / ".00000002.json.new").write_bytes(b"{")
    assert_is(Checkpoints(tmp_path).read(), 1)
    assert not any(name.endswith(".new") for name in names(tmp_path))
