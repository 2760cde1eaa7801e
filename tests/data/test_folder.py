"""Own data: CSV and NPZ files by declared rules, and a helpful one-line error for everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.core.messages import PARTS, Array
from atoll.data import DataSettings, Federated, load
from atoll.errors import DataError
from refusals import refused

ANNA = "size,weight,label\n1,10,cat\n2,20,dog\n3,30,cat\n4,40,dog\n"
BEN = "size,weight,label\n5,50,cow\n6,60,dog\n"


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def take(folder: Path, **values: Any) -> Federated:
    usual = {"split": [1.0, 0, 0], "scale": "none", "blocks": "contiguous"}
    return load(DataSettings.model_validate({"folder": str(folder), **usual, **values}), 0)


def rows(federated: Federated, name: str) -> tuple[list[Any], list[int]]:
    parts = [federated.client(name).part(part) for part in PARTS]
    x: Array = np.concatenate([part[0] for part in parts])
    return x.tolist(), np.concatenate([part[1] for part in parts]).tolist()


def refuses(folder: Path, code: str, *named: object, **values: Any) -> None:
    """Reading the folder fails with this code, in one line that names these values."""
    with refused(DataError, code, *named) as caught:
        take(folder, **values)
    assert "\n" not in str(caught.value)


def test_one_csv_a_client(tmp_path: Path) -> None:
    federated = take(put(tmp_path, anna=ANNA, ben=BEN))
    assert federated.names == ["anna", "ben"]
    assert federated.schema.classes == ("cat", "cow", "dog")  # one list over all clients
    assert federated.schema.features == ("size", "weight")
    assert rows(federated, "anna") == ([[1, 10], [2, 20], [3, 30], [4, 40]], [0, 2, 0, 2])
    assert rows(federated, "ben") == ([[5, 50], [6, 60]], [1, 2])


def test_numbers_as_labels_are_sorted_as_numbers(tmp_path: Path) -> None:
    federated = take(put(tmp_path, a="x,label\n1,10\n2,9\n3,2\n"))
    assert federated.schema.classes == ("2", "9", "10") and rows(federated, "a")[1] == [2, 1, 0]
    mixed = take(put(tmp_path, b="x,label\n1,many\n2,9\n"))
    assert mixed.schema.classes == ("10", "2", "9", "many")


def test_columns_may_stand_in_another_order_and_labels_have_another_name(tmp_path: Path) -> None:
    federated = take(put(tmp_path, a="u,v,kind\n1,2,p\n3,4,q\n", b="kind,v,u\np,6,5\nq,8,7\n"), label="kind")
    assert rows(federated, "b") == ([[5, 6], [7, 8]], [0, 1])


def test_byte_order_marks_blank_lines_quotes_and_blanks(tmp_path: Path) -> None:
    text = '\ufeff"size",label\r\n\r\n 1 , "cat, big"\r\n2,dog\r\n'.replace(', "cat', ',"cat')
    federated = take(put(tmp_path, a=text))
    assert federated.schema.features == ("size",)
    assert federated.schema.classes == ("cat, big", "dog") and rows(federated, "a")[0] == [[1], [2]]


def test_text_is_coded_over_all_clients(tmp_path: Path) -> None:
    put(tmp_path, a="colour,label\nred,0\nblue,1\n", b="colour,label\ngreen,0\nred,1\n")
    coded = take(tmp_path, categories="code")
    assert rows(coded, "a")[0] == [[2], [0]] and rows(coded, "b")[0] == [[1], [2]]
    onehot = take(tmp_path, categories="onehot")
    assert onehot.schema.features == ("colour=blue", "colour=green", "colour=red")
    assert rows(onehot, "b")[0] == [[0, 1, 0], [0, 0, 1]]
    refuses(tmp_path, "column-not-numeric", "a.csv' line 2", "'colour'", "'red'", "data.categories")


def test_a_column_that_is_text_for_one_client_is_text_for_all(tmp_path: Path) -> None:
    put(tmp_path, a="x,label\n1,0\n2,1\n", b="x,label\nhigh,0\n2,1\n")
    refuses(tmp_path, "column-not-numeric", "b.csv' line 2", "'x'", "'high'")
    assert rows(take(tmp_path, categories="code"), "b")[0] == [[2], [1]]


@pytest.mark.parametrize("word", ["", "NA", "nan", "?", "null"])
def test_missing_values_are_refused_or_filled_per_client(tmp_path: Path, word: str) -> None:
    put(tmp_path, a=f"x,u,label\n1,1,0\n{word},1,1\n5,1,1\n", b="x,u,label\n100,1,0\n100,1,1\n")
    refuses(tmp_path, "missing-value", "a.csv' line 3", "'x'", "data.missing")
    assert rows(take(tmp_path, missing="mean"), "a")[0][1] == [3, 1]
    assert rows(take(tmp_path, missing="zero"), "a")[0][1] == [0, 1]


def test_a_missing_category_is_a_category(tmp_path: Path) -> None:
    put(tmp_path, a="c,label\nred,0\n,1\n")
    federated = take(tmp_path, categories="onehot", missing="zero")
    assert federated.schema.features == ("c=(missing)", "c=red")


def test_one_csv_with_a_client_column(tmp_path: Path) -> None:
    put(tmp_path, all="site,x,label\nB,1,0\nA,2,1\nB,3,1\nA,4,0\n")
    for place in (tmp_path, tmp_path / "all.csv"):
        federated = take(place, client_column="site")
        assert federated.names == ["A", "B"] and federated.schema.features == ("x",)
        assert rows(federated, "A") == ([[2], [4]], [1, 0])
    refuses(tmp_path, "client-column-missing", "'place'", client_column="place")


def test_one_csv_without_client_column_is_partitioned(tmp_path: Path) -> None:
    put(tmp_path, all="x,label\n" + "".join(f"{row},{row % 2}\n" for row in range(20)))
    federated = take(tmp_path / "all.csv", clients=4, partition="iid")
    assert federated.names[-1] == "client-003" and federated.rows == 20


@pytest.mark.parametrize(
    ("files", "code", "named"),
    [
        ({"a": "x,y\n1,2\n3,4\n"}, "label-column-missing", ["a.csv", "'label'"]),
        ({"a": "x,Label\n1,2\n3,4\n"}, "label-column-missing", ["a.csv", "'Label'"]),
        ({"a": "x,label\n1,0\n2,1\n", "b": "z,label\n1,0\n2,1\n"}, "columns-differ", ["'x'", "a.csv", "b.csv"]),
        ({"a": "x,label\n"}, "too-few-rows", ["a.csv"]),
        ({"a": "x,label\n1,0\n"}, "too-few-rows", ["a.csv"]),
        ({"a": ""}, "empty-file", ["a.csv"]),
        ({"a": "x,label\n1,0\n1,2,3\n"}, "wrong-value-count", ["a.csv' line 3", "3 values", "2 columns"]),
        ({"a": "x,x,label\n1,1,0\n2,2,1\n"}, "duplicate-column", ["a.csv", "'x'"]),
        ({"a": "x,,label\n1,1,0\n2,2,1\n"}, "unnamed-column", ["a.csv", "column 2"]),
        ({"a": "x,label\n1,0\n2,\n"}, "label-missing", ["a.csv' line 3", "'label'"]),
        ({"a": "x,label\n1,0\n2,0\n"}, "single-class", ["'0'"]),
        ({"a": "label\n1\n0\n"}, "no-feature-columns", ["a.csv"]),
        ({"a": "x,label\ninf,0\n2,1\n"}, "column-not-numeric", ["a.csv' line 2", "'x'", "'inf'"]),
        ({"a": "x,label\n1e200,0\n2,1\n"}, "column-not-numeric", ["a.csv' line 2", "'1e200'"]),
        ({"a": 'x,label\n"1,0\n2,1\n'}, "malformed-line", ["a.csv"]),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, files: dict[str, str], code: str, named: list[str]) -> None:
    refuses(put(tmp_path, **files), code, *named)


def test_text_in_other_encodings(tmp_path: Path) -> None:
    for name, encoding in (("a", "cp1252"), ("b", "utf-8"), ("c", "utf-16")):
        (tmp_path / f"{name}.csv").write_bytes("x,label\n1,größer\n2,kleiner\n".encode(encoding))
    assert take(tmp_path).schema.classes == ("größer", "kleiner")
    (tmp_path / "d.csv").write_bytes(b"x,label\n1,\0\n")
    refuses(tmp_path, "not-text", "d.csv")
    (tmp_path / "d.csv").unlink()
    refuses(tmp_path, "not-text", "a.csv", "utf-8", encoding="utf-8")


def test_one_npz_a_client(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(8).reshape(4, 2), y=np.array([0, 1, 0, 1]))
    np.savez(tmp_path / "b.npz", x=np.ones((2, 2)), y=np.array([1, 7]))
    federated = take(tmp_path)
    assert federated.names == ["a", "b"] and federated.schema.classes == ("0", "1", "7")
    assert rows(federated, "b") == ([[1, 1], [1, 1]], [1, 2])


def test_images_and_words_in_npz(tmp_path: Path) -> None:
    for name in ("a", "b"):
        np.savez(tmp_path / f"{name}.npz", x=np.full((2, 4, 5, 3), 255, np.uint8), y=np.array(["u", "v"]))
    federated = take(tmp_path)
    assert federated.schema.kind == "image" and federated.schema.shape == (3, 4, 5)
    assert federated.client("a").part("train")[0].max() == 1.0


def test_one_npz_for_all_with_client_ids(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", x=np.zeros((6, 1)), y=np.tile([0, 1], 3), client=np.array([1, 1, 1, 2, 2, 2]))
    assert take(tmp_path / "all.npz").names == ["client-01", "client-02"]


@pytest.mark.parametrize(
    ("arrays", "code", "named"),
    [
        ({"x": np.zeros((2, 3))}, "array-missing", ["'y'"]),
        ({"x": np.zeros((1, 2)), "y": np.zeros(1)}, "too-few-rows", []),
        ({"x": np.zeros((0, 2)), "y": np.zeros(0)}, "too-few-rows", []),
        ({"x": np.zeros((2, 3)), "y": np.array([0, 1])}, "row-shapes-differ", ["(3,)", "a.npz", "(2,)"]),
        ({"x": np.zeros((3, 2)), "y": np.array([0, 1])}, "label-count-mismatch", ["(3, 2)", "(2,)"]),
        ({"x": np.array([["a", "b"]] * 2), "y": np.array([0, 1])}, "wrong-array-type", ["<U1"]),
        ({"x": np.zeros((2, 2)), "y": np.array(["0", "1"])}, "label-kinds-differ", ["a.npz"]),
        (
            {"x": np.array([[0, 1], [2, np.nan]]), "y": np.array([0, 1])},
            "missing-value",
            ["row 1", "column 1", "data.missing"],
        ),
        ({"x": np.array([{}, {}], dtype=object), "y": np.array([0, 1])}, "object-arrays", []),
    ],
)
def test_archives_that_do_not_fit(tmp_path: Path, arrays: dict[str, Array], code: str, named: list[str]) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.array([0, 1]))
    np.savez(tmp_path / "b.npz", **arrays)
    refuses(tmp_path, code, "b.npz", *named)


def test_the_file_that_differs_from_most_is_named(tmp_path: Path) -> None:
    names = np.array(["no", "yes"])
    for number, name in enumerate("abc"):
        pixels = np.zeros((2, 4, 4), np.float32 if number == 0 else np.uint8)
        np.savez(tmp_path / f"{name}.npz", x=pixels, y=np.array([0, 1]), class_names=names)
    refuses(tmp_path, "pixel-types-differ", f"'{tmp_path / 'a.npz'}': ", "float32", tmp_path / "b.npz", "uint8")
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 4, 4), np.uint8), y=np.array([0, 1]), class_names=names[::-1])
    refuses(tmp_path, "names-differ", f"'{tmp_path / 'a.npz'}': ", tmp_path / "b.npz")


def test_a_corrupted_npz(tmp_path: Path) -> None:
    (tmp_path / "a.npz").write_bytes(b"PK\x03\x04 and then nothing")
    refuses(tmp_path, "file-damaged", "a.npz")


def test_folders_without_or_with_mixed_data(tmp_path: Path) -> None:
    refuses(tmp_path, "no-data-files", tmp_path)
    refuses(tmp_path / "nowhere", "no-such-data-folder", tmp_path / "nowhere")
    put(tmp_path, a=ANNA)
    np.savez(tmp_path / "b.npz", x=np.zeros((2, 2)), y=np.array([0, 1]))
    refuses(tmp_path, "mixed-file-kinds", tmp_path)


def test_client_names_can_be_written_and_differ(tmp_path: Path) -> None:
    put(tmp_path, a=ANNA)
    (tmp_path / "a.CSV").write_text(BEN)
    refuses(tmp_path, "duplicate-client-name", "'a'")
    (tmp_path / "a.CSV").rename(tmp_path / "\udcff.csv")
    refuses(tmp_path, "invalid-client-name", repr("\udcff"))


def test_a_folder_may_be_partitioned_again_or_in_part(tmp_path: Path) -> None:
    put(tmp_path, anna=ANNA, ben=BEN)
    assert len(take(tmp_path, clients=1).names) == 1
    assert take(tmp_path, clients=3, partition="iid").names == ["client-000", "client-001", "client-002"]
