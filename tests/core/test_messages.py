"""Tensors: immutable, sliceable, named by content."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.core.messages import LONGEST, Schema, Tensors, content_name, one_line, printable


def test_content_names_never_change() -> None:
    """Checkpoints and clients refer to tensors by these names."""
    assert content_name(np.array([1, 2, 3], "<f4")) == "36fc61a91fb8e1b421bffe06fae1772e"
    assert content_name(np.zeros((0, 3), "<f4")) == "4428ccde72d3878189a9fcc575d54d39"
    assert content_name(np.array(5, "<i8")) == "36600438dbf001410423f4306d285367"


def test_content_names_tell_dtype_shape_and_values_apart() -> None:
    arrays = [np.zeros(4, np.float32), np.zeros(4, np.int32), np.zeros((2, 2), np.float32), np.zeros(0, np.float32)]
    arrays += [np.zeros((0, 1), np.float32), np.zeros((), np.float32), np.array([0, 0, 0, -0.0], np.float32)]
    assert len({content_name(array) for array in arrays}) == len(arrays)


def test_a_layout_in_memory_is_not_content() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert content_name(np.asfortranarray(array)) == content_name(array)
    assert Tensors({"a": array.T})["a"].flags.c_contiguous


def test_arrays_cannot_be_written_to() -> None:
    source = np.zeros(3)
    tensors = Tensors({"a": source})
    with pytest.raises(ValueError, match="read-only"):
        tensors["a"][0] = 1
    source[1] = 1  # the giver's own array stays as it was: writable


def test_zero_dimensions_stay_zero() -> None:
    assert Tensors({"a": np.array(3.0)})["a"].shape == ()


def test_a_slice_shares_arrays_and_keeps_digests() -> None:
    tensors = Tensors({"a": np.zeros(2), "b": np.ones(2)})
    known = tensors.digest("a")
    part = tensors.slice(["a"])
    assert part["a"] is tensors["a"] and part._digests == {"a": known}
    with pytest.raises(KeyError):
        tensors.slice(["c"])


def test_replacing_forgets_only_what_has_changed() -> None:
    tensors = Tensors({"a": np.zeros(2), "b": np.ones(2)})
    before = {name: tensors.digest(name) for name in tensors}
    after = tensors.replaced({"b": np.zeros(2)})
    assert after.digest("a") == before["a"] and after.digest("b") == before["a"]  # equal contents, equal names
    assert tensors.digest("b") == before["b"]


def test_one_name_for_all_depends_on_names_not_on_order() -> None:
    zeros, ones = np.zeros(2), np.ones(2)
    first = Tensors({"a": zeros, "b": ones}).whole_digest()
    assert first == Tensors({"b": ones, "a": zeros}).whole_digest()
    assert first != Tensors({"a": ones, "b": zeros}).whole_digest()


@pytest.mark.parametrize("arrays", [{"a": [1, 2]}, {"a": np.float32(1)}, {1: np.zeros(1)}])
def test_only_named_arrays_are_tensors(arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(TypeError):
        Tensors(arrays)


def test_size_and_text() -> None:
    tensors = Tensors({"a": np.zeros(300, np.float32)})
    assert tensors.nbytes == 1200 and repr(tensors) == "Tensors(1 arrays, 1,200 bytes)"
    assert Schema("table", (3,), ("no", "yes")).outputs == 2


def test_control_characters_are_written_out() -> None:
    assert printable("a\x1b[2Jb\n\udcffä") == "a\\x1b[2Jb\\n\\udcffä"
    assert one_line(" a\n\tb " + "\ud800" * 9999) == "a b " + ("\\ud800" * 999)[: LONGEST - 4]
