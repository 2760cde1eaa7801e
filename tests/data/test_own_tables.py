"""Own tables: dates, windows, words for missing values, columns that are left out, DataFrames and Parquet files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from atoll.data import DataSettings, Federated, load
from atoll.errors import ConfigError, DataError
from atoll.preparation.answers import network_input
from refusals import refused

TEN = "".join(f"{row},{row % 2}\n" for row in range(10))


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def take(folder: Path, **values: Any) -> Federated:
    usual = {"split": [1.0, 0, 0], "scale": "none", "blocks": "contiguous"}
    return load(DataSettings.model_validate({"folder": str(folder), **usual, **values}), 0)


def rows(federated: Federated, name: str) -> tuple[list[Any], list[int]]:
    x, y = federated.client(name).part("train")
    return x.tolist(), y.tolist()


# -- dates -------------------------------------------------------------------------------------------------------------


def test_dates_are_refused_by_name_and_become_numbers_by_a_setting(tmp_path: Path) -> None:
    """`days` count from the first day of all clients; 1 March 2024 was a Friday."""
    put(tmp_path, a="day,label\n2024-03-01 06:30,0\n2024-03-11,1\n", b="day,label\n28.02.2024,0\n,1\n")
    with refused(DataError, "date-column", "a.csv' line 2", "'day'", "2024-03-01", "data.dates.day"):
        take(tmp_path, missing="zero")
    found = take(tmp_path, missing="zero", dates={"day": ["days", "month", "weekday", "hour"]})
    assert found.schema.features == ("day (days)", "day (month)", "day (weekday)", "day (hour)")
    assert rows(found, "a")[0] == [pytest.approx([2 + 6.5 / 24, 3, 4, 6.5]), [12, 3, 0, 0]]
    assert rows(found, "b")[0] == [[0, 2, 2, 0], [0, 0, 0, 0]]  # the gap is filled
    (column,) = found.preparation.columns
    assert column.origin == "2024-02-28"


def test_the_order_of_day_and_month(tmp_path: Path) -> None:
    put(tmp_path, a="day,label\n03/04/2024,0\n03/31/2024,1\n")
    with refused(DataError, "date-order", "'03/04/2024'", "mdy"):
        take(tmp_path)
    found = take(tmp_path, date_order="mdy", dates={"day": ["days", "month"]})
    assert rows(found, "a")[0] == [[0, 3], [27, 3]]


def test_a_column_of_dates_that_holds_something_else(tmp_path: Path) -> None:
    put(tmp_path, a="day,label\n2024-03-01,0\nsoon,1\n")
    with refused(DataError, "not-a-date", "a.csv' line 3", "'soon'"):
        take(tmp_path, dates={"day": ["days"]})
    with refused(DataError, "unknown-column", "'dya'", "'day'"):
        take(tmp_path, dates={"dya": ["days"]}, categories="code")
    with refused(ConfigError, "invalid-setting", "data.dates.day"):
        DataSettings(folder=str(tmp_path), dates={"day": ()})


# -- windows -----------------------------------------------------------------------------------------------------------


def test_windows_of_a_series_have_the_label_of_their_last_row(tmp_path: Path) -> None:
    put(tmp_path, a="x,label\n" + TEN, b="x,label\n" + TEN)
    found = take(tmp_path, window=3)
    assert found.schema.features == ("x [0]", "x [1]", "x [2]")
    assert rows(found, "a") == ([[0, 1, 2], [3, 4, 5], [6, 7, 8]], [0, 1, 0])
    overlapping = take(tmp_path, window=3, window_step=2)
    assert rows(overlapping, "b") == ([[0, 1, 2], [2, 3, 4], [4, 5, 6], [6, 7, 8]], [0, 0, 0, 0])


def test_a_file_of_a_series_gives_one_row_for_each_window(tmp_path: Path) -> None:
    put(tmp_path, a="x,label\n" + TEN, b="x,label\n" + TEN)
    found = take(tmp_path, window=4, window_step=3)
    values, places = network_input(found.preparation.plain(), tmp_path / "a.csv")
    assert values.tolist() == rows(found, "a")[0] == [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]]
    assert [place.rpartition(" ")[2] for place in places] == ["5", "8", "11"]  # the lines of the last rows


def test_a_series_that_is_too_short(tmp_path: Path) -> None:
    put(tmp_path, a="x,label\n" + TEN, b="x,label\n1,0\n2,1\n3,0\n")
    with refused(DataError, "series-too-short", "b.csv", "3 rows", "1 windows"):
        take(tmp_path, window=3)
    with refused(ConfigError, "inapplicable-setting", "data.window"):
        DataSettings(folder=str(tmp_path), window=3, client_column="x")
    with refused(ConfigError, "inapplicable-setting", "data.window_step"):
        DataSettings(folder=str(tmp_path), window_step=3)


# -- columns and cells -------------------------------------------------------------------------------------------------


def test_words_for_missing_values_are_a_setting(tmp_path: Path) -> None:
    put(tmp_path, a="x,c,label\n-999,na,0\n4,red,1\n")
    found = take(tmp_path, missing="zero", missing_words=["-999"], categories="onehot")
    assert found.schema.features == ("x", "c=na", "c=red")  # "na" is a word now
    assert rows(found, "a")[0] == [[0, 1, 0], [4, 0, 1]]
    assert take(tmp_path, missing="zero", categories="onehot").schema.features == ("x", "c=(missing)", "c=red")


def test_a_class_named_none_is_a_class(tmp_path: Path) -> None:
    put(tmp_path, a="x,label\n1,none\n2,mild\n3,NA\n")
    assert take(tmp_path).schema.classes == ("NA", "mild", "none")
    put(tmp_path, a="x,label\n1,none\n2,mild\n3,\n")
    with refused(DataError, "label-missing", "a.csv' line 4", "'label'", "1 of 3"):
        take(tmp_path)


def test_columns_are_left_out_and_have_units(tmp_path: Path) -> None:
    """A column that is dropped need not be in every file, and may hold anything."""
    put(tmp_path, a="id,x,label\nP1,1,0\nP2,2,1\n", b="x,label\n3,0\n4,1\n")
    with refused(DataError, "column-not-numeric", "'id'"):
        take(tmp_path)
    found = take(tmp_path, drop=["id"], units={"x": "kg"})
    assert found.schema.features == ("x",) and found.preparation.columns[0].unit == "kg"
    assert "id" in found.preparation.ignored  # raw rows may have it
    for setting, value in (("drop", ["ip"]), ("units", {"y": "kg"})):
        with refused(DataError, "unknown-column", f"data.{setting}"):
            take(tmp_path, **{"drop": ["id"], setting: value})


def test_text_with_many_values_is_refused_with_their_number(tmp_path: Path) -> None:
    names = "".join(f"w{row},{row % 2}\n" for row in range(6))
    put(tmp_path, a="c,label\n" + names, b="c,label\n" + names.replace("w", "v"))
    with refused(DataError, "too-many-categories", "a.csv' line 2", "'c'", "'w0'", "6 different", "= 5"):
        take(tmp_path, categories="onehot", max_categories=5)
    with refused(DataError, "too-many-categories", "'c'", "12 different", "over all clients"):
        take(tmp_path, categories="onehot", max_categories=6)
    assert len(take(tmp_path, categories="onehot", max_categories=12).schema.features) == 12


@pytest.mark.parametrize("labels", [["0.13", "0.55", "1"], [str(7 * row) for row in range(30)]])
def test_quantities_are_no_classes(tmp_path: Path, labels: list[str]) -> None:
    put(tmp_path, a="x,label\n" + "".join(f"{row},{label}\n" for row, label in enumerate(labels)))
    with refused(DataError, "continuous-label", "a.csv", "'label'", f"{len(labels) - 1} other"):
        take(tmp_path)


def test_decimal_commas_and_their_settings(tmp_path: Path) -> None:
    put(tmp_path, a="x;label\n1,5;0\n2,5;1\n", b='x,label\n"3,5",0\n"4,5",1\n')
    with refused(DataError, "column-not-numeric", "b.csv' line 2", "'3,5'"):
        take(tmp_path)
    found = take(tmp_path, decimal=",")
    assert rows(found, "a")[0] == [[1.5], [2.5]] and rows(found, "b")[0] == [[3.5], [4.5]]
    values, _ = network_input(found.preparation.plain(), tmp_path / "b.csv")  # raw rows are read in the same way
    assert values.tolist() == [[3.5], [4.5]]


# -- other tables ------------------------------------------------------------------------------------------------------


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "hospital": ["north"] * 3 + ["south"] * 3,
            "day": pd.to_datetime(["2024-01-01", "2024-01-03", None] * 2),
            "x": [1.5, None, 2.5, 3, 4, 5],
            "n": pd.array([1, None, 3, 4, 5, 6], dtype="Int64"),
            "c": pd.Categorical(["a", "b", None, "a", "b", "a"]),
            "ill": [True, False, True, False, True, False],
        }
    )


def test_a_data_frame_with_a_column_of_clients() -> None:
    settings: dict[str, Any] = {"label": "ill", "missing": "zero", "categories": "onehot", "dates": {"day": ["days"]}}
    settings |= {"scale": "none", "split": [1.0, 0, 0], "blocks": "contiguous"}
    found = Federated.from_dataframe(frame(), client="hospital", **settings)
    assert found.names == ["north", "south"] and found.schema.classes == ("False", "True")
    assert found.schema.features == ("day (days)", "x", "n", "c=(missing)", "c=a", "c=b")
    expected = [[0, 1.5, 1, 0, 1, 0], [2, 0, 0, 0, 0, 1], [0, 2.5, 3, 1, 0, 0]]
    assert rows(found, "north") == (expected, [1, 0, 1])
    columns = {name: frame()[name].to_numpy() for name in frame().columns}
    assert Federated.from_dataframe(columns, client="hospital", **settings).digest() == found.digest()


def test_all_problems_of_a_data_frame_are_reported() -> None:
    with refused(DataError, "missing-value", "row 2", "'day'", "5 more problems") as caught:
        Federated.from_dataframe(frame(), client="hospital", label="ill")
    codes = [problem.code for problem in getattr(caught.value, "problems", ())]
    assert sorted(codes) == ["column-not-numeric", "date-column", *["missing-value"] * 4]
    assert getattr(caught.value, "settings", {}) == {
        "missing": "mean",
        "dates": {"day": ["days"]},
        "categories": "onehot",
    }
    with refused(DataError, "client-column-missing", "'clinic'", "hospital"):
        Federated.from_dataframe(frame(), client="clinic", label="ill")
    with refused(ConfigError, "unknown-setting", "data.lable", "'label'"):
        Federated.from_dataframe(frame(), client="hospital", lable="ill")


def test_parquet_files(tmp_path: Path) -> None:
    table = frame().drop(columns="c")
    for name in ("north", "south"):
        own = table[table["hospital"] == name].drop(columns="hospital")
        own.to_parquet(tmp_path / f"{name}.parquet")
    found = take(tmp_path, label="ill", missing="zero", dates={"day": ["days"]})
    assert found.schema.classes == ("False", "True")
    assert rows(found, "north") == ([[0, 1.5, 1], [2, 0, 0], [0, 2.5, 3]], [1, 0, 1])
    values, _ = network_input({**found.preparation.plain()}, tmp_path / "south.parquet")
    assert np.isnan(values[2, 0]) and values[:2].tolist() == [[0, 3, 4], [2, 4, 5]]
    (tmp_path / "south.parquet").write_bytes(b"PAR1 and then nothing")
    with refused(DataError, "file-damaged", "south.parquet"):
        take(tmp_path, label="ill", missing="zero", dates={"day": ["days"]})
