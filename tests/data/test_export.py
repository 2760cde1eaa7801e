"""A data set as one file per client reads back to the same rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atoll.data import catalog
from atoll.data.files.export import export
from atoll.data.files.folder import agreement_of, judge, open_folder, source_of
from atoll.data.settings import DataSettings
from atoll.data.source import Source
from atoll.errors import DataError
from refusals import refused


def read(folder: Path) -> Source:
    found = judge(open_folder(settings(folder)), settings(folder))
    return source_of(found, agreement_of(found))


def settings(folder: Path) -> DataSettings:
    return DataSettings.model_validate({"folder": str(folder)})


def in_order(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    table = np.column_stack([x.reshape(len(x), -1), y])
    return table[np.lexsort(table.T)]


def test_a_table_comes_back_bit_by_bit(tmp_path: Path) -> None:
    written = export("wine", tmp_path / "out", ["north", "south", "west"], None, None, seed=1)
    assert [path.name for path, _ in written] == ["north.csv", "south.csv", "west.csv"]
    assert sum(rows for _, rows in written) == 178 and max(rows for _, rows in written) <= 60
    there, here = read(tmp_path / "out"), catalog.read("wine", None)
    assert there.schema.features == here.schema.features and there.group_names == ("north", "south", "west")
    # Class names are sorted when read from files; these are in that order already.
    assert there.schema.classes == here.schema.classes
    assert np.array_equal(in_order(there.x, there.y), in_order(here.x.astype(np.float32), here.y))


def test_images_come_back_bit_by_bit(tmp_path: Path) -> None:
    written = export("digits", tmp_path / "out", None, 2, "iid", seed=1)
    assert [path.name for path, _ in written] == ["client-000.npz", "client-001.npz"]
    there, here = read(tmp_path / "out"), catalog.read("digits", None)
    assert there.schema == here.schema
    assert np.array_equal(in_order(there.x, there.y), in_order(here.x, here.y))


def test_the_same_seed_writes_the_same_files(tmp_path: Path) -> None:
    for folder, seed in (("a", 1), ("b", 1), ("c", 2)):
        export("wine", tmp_path / folder, None, 2, "iid", seed)
    a, b, c = ((tmp_path / folder / "client-000.csv").read_bytes() for folder in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (["a", "a"], "duplicate-client-name"),
        (["../a", "b"], "invalid-client-name"),
        (["a/b", "c"], "invalid-client-name"),
        ([".a", "b"], "invalid-client-name"),
        (["a\0", "b"], "invalid-client-name"),
    ],
)
def test_names_that_are_no_files(tmp_path: Path, names: list[str], code: str) -> None:
    with refused(DataError, code):
        export("wine", tmp_path / "out", names, None, None, seed=1)
    assert list(tmp_path.rglob("*")) == []


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("mine")
    with refused(DataError, "file-exists", tmp_path / "b.csv"):
        export("wine", tmp_path, ["a", "b"], None, None, seed=1)
    assert (tmp_path / "b.csv").read_text() == "mine" and not (tmp_path / "a.csv").exists()


def test_names_and_number_must_agree(tmp_path: Path) -> None:
    with refused(DataError, "client-names-mismatch", "--clients 3", 2):
        export("wine", tmp_path, ["a", "b"], 3, None, seed=1)
