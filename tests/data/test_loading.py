"""`load`: from settings to a federation, on data that needs no files."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from atoll.data import DataSettings, catalogue, load
from atoll.data.federated import histogram
from atoll.data.loading import balanced
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused


def settings(**values: Any) -> DataSettings:
    return DataSettings.model_validate({"name": "digits", **values})


@pytest.mark.parametrize(
    ("name", "rows", "shape", "classes"),
    [("digits", 1797, (1, 8, 8), 10), ("breast_cancer", 569, (30,), 2), ("wine", 178, (13,), 3)],
)
def test_built_in_data_sets(name: str, rows: int, shape: tuple[int, ...], classes: int) -> None:
    federated = load(DataSettings(name=name, clients=4), 0)
    assert federated.rows == rows and federated.schema.shape == shape and federated.schema.outputs == classes
    assert federated.names == ["client-000", "client-001", "client-002", "client-003"]
    assert sum(sum(federated.sizes(name).values()) for name in federated.names) == rows
    if len(shape) == 1:
        assert len(federated.schema.features) == shape[0]


def test_pixels_of_digits_lie_between_zero_and_one() -> None:
    x, _ = load(settings(clients=1), 0).client("client-000").part("train")
    assert x.min() == 0 and x.max() == 1


def test_tables_are_scaled_by_pooled_statistics_by_default() -> None:
    federated = load(DataSettings(name="wine", clients=5), 0)
    x = np.concatenate([federated.client(name).part("train")[0] for name in federated.names])
    assert np.allclose(x.mean(axis=0), 0, atol=1e-5) and np.allclose(x.std(axis=0), 1, atol=1e-4)
    raw = load(DataSettings(name="wine", clients=5, scale="none"), 0).client("client-000").part("train")[0]
    assert raw.max() > 100


@pytest.mark.parametrize("partition", ["iid", "classes:3", "shards:2", "dirichlet:0.5", "quantity:0.5"])
def test_same_seed_same_bits_other_seed_other_rows(partition: str) -> None:
    chosen = settings(clients=10, partition=partition)
    assert load(chosen, 1).digest() == load(chosen, 1).digest()
    assert load(chosen, 1).digest() != load(chosen, 2).digest()


def test_partitions_reach_the_clients() -> None:
    held = histogram(load(settings(clients=10, partition="classes:3"), 0))
    assert ((held > 0).sum(axis=1) == 3).all() and held.sum() == 1797
    held = histogram(load(settings(clients=20, partition="shards:2"), 0))
    assert (held > 0).sum(axis=1).max() <= 4 and held.sum(axis=1).max() <= 91


def test_the_default_split_is_six_two_two() -> None:
    assert load(settings(clients=10), 0).sizes("client-000") == {"train": 107, "validation": 36, "test": 36}


def test_capped_rows_are_balanced() -> None:
    held = histogram(load(settings(clients=5, rows=200), 0))
    assert held.sum(axis=0).tolist() == [20] * 10


def test_balance_gives_way_where_a_class_is_too_small() -> None:
    labels = np.array([0] * 2 + [1] * 50 + [2] * 50)
    kept = balanced(labels, 12, stream(0))
    assert np.bincount(labels[kept]).tolist() == [2, 5, 5] and (np.diff(kept) > 0).all()


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"name": "digit"}, "unknown-dataset", ["'digit'", "'digits'"]),
        ({"clients": 900}, "too-many-clients", ["900", "1797", "898"]),
        ({"partition": "classes:11"}, "invalid-partition-number", ["'classes:11'", "10"]),
        ({"partition": "natural"}, "no-natural-clients", ["'natural'"]),
        ({"rows": 5000}, "rows-exceed-data", ["data.rows = 5000", "1797"]),
        ({"test_rows": 10}, "no-test-set", ["data.test_rows = 10"]),
        (
            {"name": "mnist"},
            "no-data-folder",
            ["'mnist'", "--data-dir", "ATOLL_DATA", "mnist.npz", "atoll datasets fetch mnist"],
        ),
        ({"name": "uci_har"}, "no-data-folder", ["uci_har.npz"]),
    ],
)
def test_what_cannot_be_is_one_line(
    values: dict[str, Any], code: str, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ATOLL_DATA", raising=False)
    with refused(DataError, code, *named) as caught:
        load(settings(**values), 0)
    assert "\n" not in str(caught.value)


def test_a_data_folder_that_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with refused(DataError, "no-such-data-folder", "--data-dir", "'/nowhere/at/all'"):
        load(settings(name="mnist"), 0, data_dir="/nowhere/at/all")
    monkeypatch.setenv("ATOLL_DATA", "/nowhere/else")
    with refused(DataError, "no-such-data-folder", "ATOLL_DATA", "'/nowhere/else'"):
        load(settings(name="mnist"), 0)
    assert load(settings(), 0).rows == 1797  # what needs no files does not ask for their folder


def test_the_catalogue_says_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATOLL_DATA", raising=False)
    entries = {entry.name: entry for entry in catalogue()}
    assert entries["digits"].present and not entries["mnist"].present
    assert entries["mnist"].fetchable and not entries["uci_har"].fetchable
    wanted = "digits breast_cancer wine mnist fashion_mnist cifar10 cifar100 svhn uci_har wisdm apnea_hrv cifar10_small"
    assert set(entries) >= {*wanted.split(), "wisdm_v11"}


def test_the_data_room_does_not_need_torch() -> None:
    code = "import sys; from atoll.data import *; load(DataSettings(name='wine'), 0); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
