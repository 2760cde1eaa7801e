"""Federated: who gets which rows, nothing copied, saved and attached to the same bits."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.core.messages import PARTS
from atoll.data import Federated
from atoll.data.federated import ClientData
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused


def two_clients(**options: Any) -> Federated:
    """Ten rows each; row i is [i, -i]; anna holds even rows, ben odd ones; classes alternate within each client."""
    x = np.stack([np.arange(20.0), -np.arange(20.0)], axis=1)
    y = np.arange(20) // 2 % 2
    return Federated.from_arrays(x, y, clients=np.where(np.arange(20) % 2 == 0, "anna", "ben"), **options)


def everything(client: ClientData) -> np.ndarray[Any, Any]:
    return np.concatenate([client.part(part)[0] for part in PARTS])


def test_two_clients_hold_their_own_rows() -> None:
    federated = two_clients()
    assert federated.names == ["anna", "ben"] and federated.benchmark == []
    assert federated.sizes("anna") == {"train": 6, "validation": 2, "test": 2}
    assert federated.labels("anna") == (3, 3)
    assert sorted(everything(federated.client("anna"))[:, 0].tolist()) == list(range(0, 20, 2))
    assert sorted(everything(federated.client("ben"))[:, 0].tolist()) == list(range(1, 20, 2))
    x, y = federated.client("ben").part("train")
    assert x.dtype == np.float32 and x.flags.c_contiguous and y.dtype == np.int64
    assert (x[:, 0] // 2 % 2).tolist() == y.tolist()
    assert federated.schema.kind == "table" and federated.schema.shape == (2,)
    assert federated.rows == 20


def test_parts_are_fresh_arrays() -> None:
    client = two_clients().client("anna")
    first = client.part("train")[0]
    first[:] = 7
    assert client.part("train")[0].max() != 7


def test_numbered_clients_and_words_as_labels() -> None:
    federated = Federated.from_arrays(np.zeros((8, 1)), np.array(["no", "yes"] * 4), clients=[3] * 4 + [12] * 4)
    assert federated.names == ["client-03", "client-12"]
    assert federated.schema.classes == ("no", "yes")


def test_words_kept_as_objects_are_words() -> None:
    words = np.array(["no", "yes"] * 2, dtype=object)
    federated = Federated.from_arrays(np.zeros((4, 1)), words, clients=np.array(["a"] * 4, dtype=object))
    assert federated.names == ["a"] and federated.schema.classes == ("no", "yes")


def test_labels_leave_the_client_only_if_shared() -> None:
    assert two_clients().info("anna").labels is None
    assert two_clients(share_labels=True).info("anna").labels == (3, 3)


@pytest.mark.parametrize("scale", ["none", "client", "federated"])
def test_saved_and_attached_gives_the_same_bits(tmp_path: Path, scale: str) -> None:
    test = (np.ones((5, 2)), np.array([0, 1, 0, 1, 0]))
    federated = two_clients(scale=scale, test=test, logarithm=True, share_labels=True)
    federated.save(tmp_path / "saved")
    attached = Federated.attach(tmp_path / "saved")
    assert attached.digest() == federated.digest()
    assert attached.schema == federated.schema and attached.share_labels
    for name in [*federated.names, *federated.benchmark]:
        assert attached.info(name) == federated.info(name)
        for part in PARTS:
            for one, other in zip(federated.client(name).part(part), attached.client(name).part(part), strict=True):
                assert one.dtype == other.dtype and np.array_equal(one, other)


def test_attached_arrays_are_mapped_not_loaded(tmp_path: Path) -> None:
    federated = Federated.from_arrays(np.zeros((4000, 1000), np.float32), np.arange(4000) % 2, np.arange(4000) % 4)
    federated.save(tmp_path)
    tracemalloc.start()
    attached = Federated.attach(tmp_path)
    attached.client("client-01")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000  # of 16 MB; the names of 1,000 columns are the rest
    with pytest.raises(ValueError):
        attached.client_rows.x[0, 0] = 1


def test_ten_thousand_clients_share_the_array() -> None:
    x = np.zeros((60_000, 28, 28), np.uint8)
    ids = np.repeat(np.arange(10_000), 6)
    federated = Federated.from_arrays(x, np.arange(60_000) % 10, ids, split=(0.8, 0.2, 0.0))
    held = federated.client_rows
    assert len(federated.names) == 10_000
    assert np.shares_memory(held.x, x) and held.x.dtype == np.uint8
    assert held.rows.nbytes + held.bounds.nbytes + held.y.nbytes < 1_500_000  # all there is besides the images' 47 MB
    images, _ = federated.client("client-9999").part("train")
    assert images.shape == (4, 1, 28, 28) and images.dtype == np.float32


def test_the_digest_tells_changes_of_rows_owners_and_split() -> None:
    digests = {
        two_clients().digest(),
        two_clients(seed=1).digest(),
        two_clients(scale="client").digest(),
        two_clients(class_names=["a", "b"]).digest(),
        two_clients(split=(0.8, 0.2, 0.0)).digest(),
    }
    assert len(digests) == 5
    assert two_clients().digest() == two_clients().digest()


def test_the_official_test_set_is_sliced() -> None:
    test = (np.arange(4001.0)[:, None].repeat(2, axis=1), np.arange(4001) % 2)
    federated = two_clients(test=test)
    assert federated.benchmark == ["benchmark-00", "benchmark-01", "benchmark-02"]
    sizes = [federated.sizes(name) for name in federated.benchmark]
    assert [size["test"] for size in sizes] == [2000, 1900, 101]  # no slice of a single row
    assert all(size["train"] == size["validation"] == 0 for size in sizes)
    rows = np.concatenate([federated.client(name).part("test")[0][:, 0] for name in federated.benchmark])
    assert np.array_equal(rows, np.arange(4001))
    assert federated.client("benchmark-00").part("train")[0].shape == (0, 2)
    assert federated.rows == 20


def test_a_test_slice_scales_by_its_own_rows_when_clients_do() -> None:
    test = (np.array([[7.0, 1.0], [9.0, 1.0]]), np.array([0, 1]))
    x, _ = two_clients(test=test, scale="client").client("benchmark-00").part("test")
    assert x.tolist() == [[-1, 0], [1, 0]]


def test_gaps_in_the_official_test_set_are_filled_as_those_of_a_new_client() -> None:
    test = (np.array([[1.0, np.nan]] * 2), np.array([0, 1]))
    federated = two_clients(test=test, missing="mean")
    x, _ = federated.client("benchmark-00").part("test")
    train = [federated.client(name).part("train")[0][:, 1] for name in federated.names]
    assert x[0, 1] == pytest.approx(np.concatenate(train).mean(), rel=1e-6)
    with refused(DataError, "missing-value", "benchmark-00"):
        two_clients(test=test)


@pytest.mark.parametrize("scale", ["none", "client", "federated"])
def test_centralising_keeps_rows_parts_and_scale(scale: str) -> None:
    federated = two_clients(scale=scale, test=(np.ones((4, 2)), np.array([0, 1, 0, 1])))
    central = federated.centralised()
    assert central.names == ["everybody"] and central.benchmark == federated.benchmark
    for part in PARTS:
        x, y = central.client("everybody").part(part)
        pieces = [federated.client(name).part(part) for name in federated.names]
        assert np.array_equal(x, np.concatenate([piece[0] for piece in pieces]))
        assert np.array_equal(y, np.concatenate([piece[1] for piece in pieces]))
    one, other = (data.client("benchmark-00").part("test")[0] for data in (federated, central))
    assert np.array_equal(one, other)


def test_gaps_are_filled_from_the_clients_own_training_rows() -> None:
    x = np.array([[1.0], [3.0], [np.nan], [100.0], [200.0], [300.0]])
    options: dict[str, Any] = {"split": (1.0, 0.0, 0.0), "blocks": "contiguous"}
    for rule, expected in (("mean", 2.0), ("median", 2.0), ("zero", 0.0)):
        federated = Federated.from_arrays(x, [0, 1] * 3, ["a"] * 3 + ["b"] * 3, missing=rule, **options)
        assert federated.client("a").part("train")[0].ravel().tolist() == [1.0, 3.0, expected]
    with refused(DataError, "missing-value", "client 'a'", "'x0'", "data.missing"):
        Federated.from_arrays(x, [0, 1] * 3, ["a"] * 3 + ["b"] * 3, **options)
    empty = np.array([[np.nan, 1.0]] * 4)
    federated = Federated.from_arrays(empty, [0, 1] * 2, ["a"] * 4, missing="mean", **options)
    assert federated.client("a").part("train")[0][:, 0].tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        ((np.zeros((4, 2)), [0, 1, 0, 1], ["a", "a", "a"]), "client-ids-mismatch", [3, 4]),
        ((np.zeros((4, 2)), [0, 1, 0], ["a"] * 4), "label-count-mismatch", [4, 3]),
        ((np.zeros((4, 2)), [0, 0, 0, 0], ["a"] * 4), "single-class", ["'0'"]),
        ((np.zeros((4, 2)), [0, 1, 0, 1], ["a", "a", "a", "b"]), "too-few-rows", ["'b'"]),
        ((np.zeros(4), [0, 1, 0, 1], ["a"] * 4), "wrong-array-shape", [(4,)]),
        ((np.array([["u"], ["v"]]), [0, 1], ["a"] * 2), "wrong-array-type", ["<U1"]),
        ((np.array([[np.inf], [1.0]]), [0, 1], ["a"] * 2), "infinite-value", ["row 0"]),
        ((np.array([[1e300], [1.0]]), [0, 1], ["a"] * 2), "infinite-value", ["row 0"]),
        ((np.zeros((2, 1)), [0.5, 1.0], ["a"] * 2), "labels-not-whole", []),
        ((np.zeros((2, 1)), [0, 1], [0.5, 1.0]), "invalid-client-ids", ["float64"]),
    ],
)
def test_arrays_that_do_not_fit(arguments: tuple[Any, Any, Any], code: str, named: list[object]) -> None:
    with refused(DataError, code, *named) as caught:
        Federated.from_arrays(*arguments)
    assert "\n" not in str(caught.value)


def test_unknown_clients_and_folders(tmp_path: Path) -> None:
    with refused(DataError, "unknown-client", "'carl'", "'anna'", "'ben'"):
        two_clients().client("carl")
    with refused(DataError, "no-saved-federation", tmp_path):
        Federated.attach(tmp_path)
    two_clients().save(tmp_path)
    (tmp_path / "x.npy").write_bytes(b"nonsense")
    with refused(DataError, "file-damaged", tmp_path / "x.npy"):
        Federated.attach(tmp_path)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((4, 8, 8), (1, 8, 8)),
        ((4, 8, 6, 3), (3, 8, 6)),
        ((4, 8, 6, 1), (1, 8, 6)),
        ((4, 3, 8, 6), (3, 8, 6)),
        ((4, 2, 8, 6), (2, 8, 6)),
        ((4, 5), (5,)),
    ],
)
def test_images_become_channels_first(shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    x = stream(0).integers(0, 255, shape).astype(np.uint8)
    federated = Federated.from_arrays(x, [0, 1, 0, 1], ["a"] * 4, split=(1.0, 0.0, 0.0), blocks="contiguous")
    assert federated.schema.shape == expected
    assert federated.schema.kind == ("table" if len(shape) == 2 else "image")
    found = federated.client("a").part("train")[0]
    if len(shape) == 4 and shape[3] in (1, 3):
        assert np.allclose(found, np.moveaxis(x, 3, 1) / 255)
