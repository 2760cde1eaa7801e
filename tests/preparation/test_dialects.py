"""Text files in the dialects that people have: what is detected, and what a setting overrides."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from atoll.preparation.tables import RowError, read_lines


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    path = folder / "rows.csv"
    path.write_bytes(text.encode(encoding))
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(tmp_path: Path, separator: str) -> None:
    rows = [["a", "b", "c"], ["1", "x y", "2.5"], ["3", "z", "4.5"]]
    found = read_lines(write(tmp_path, "\n".join(separator.join(row) for row in rows)))
    assert found.cells == {"a": ["1", "3"], "b": ["x y", "z"], "c": ["2.5", "4.5"]}
    assert found.dialect == ("utf-8", separator, ".") and found.lines == [2, 3]


def test_the_separator_is_the_one_that_divides_all_lines_alike(tmp_path: Path) -> None:
    text = "height, in cm;weight, in kg, dressed\n180;80\n170;70\n"
    assert list(read_lines(write(tmp_path, text)).cells) == ["height, in cm", "weight, in kg, dressed"]


@pytest.mark.parametrize(
    ("rows", "decimal"),
    [
        ("1,5;2\n2,5;3\n", ","),
        ("1,5;2.5\n2,5;x\n", ","),  # two against one
        ("1.5;2\n", "."),
        ("1;2\n", "."),
        ("1.2.2024;2,5e3\n", ","),
        ("nothing, really;2\n", "."),
    ],
)
def test_the_decimal_sign(tmp_path: Path, rows: str, decimal: str) -> None:
    assert read_lines(write(tmp_path, f"a;b\n{rows}")).dialect.decimal == decimal
    assert read_lines(write(tmp_path, f"a;b\n{rows}"), decimal=".").dialect.decimal == "."


def test_commas_between_columns_mean_points_in_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, 'a,b\n"1,5",2\n')
    assert read_lines(path).dialect.decimal == "." and read_lines(path, decimal=",").dialect.decimal == ","


@pytest.mark.parametrize(
    ("written", "found"), [("utf-8", "utf-8"), ("utf-8-sig", "utf-8"), ("utf-16", "utf-16"), ("cp1252", "cp1252")]
)
def test_encodings(tmp_path: Path, written: str, found: str) -> None:
    read = read_lines(write(tmp_path, "größe,€\n1,ä\n", written))
    assert read.cells == {"größe": ["1"], "€": ["ä"]} and read.dialect.encoding == found


def test_an_encoding_that_is_set_is_used(tmp_path: Path) -> None:
    path = write(tmp_path, "größe,b\n1,2\n", "latin-1")
    assert "größe" in read_lines(path, encoding="latin-1").cells
    with pytest.raises(RowError, match="utf-8") as caught:
        read_lines(path, encoding="utf-8")
    assert caught.value.code == "not-text"


def test_line_breaks_and_quotes_within_cells(tmp_path: Path) -> None:
    text = 'a,b\r\n1,"two\r\nlines, and ""quotes"""\r\n\r\n2,x\r\n'
    found = read_lines(write(tmp_path, text))
    assert found.cells == {"a": ["1", "2"], "b": ['two\r\nlines, and "quotes"', "x"]}
    assert found.lines == [3, 5]  # where the row ends


WORDS = st.text("abc ,;|\t\"\n'é.1", max_size=6).map(str.strip)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False, width=32)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(NUMBERS, WORDS, st.integers(-9, 9)), min_size=2, max_size=6),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16"]),
)
def test_written_tables_are_read_back(
    tmp_path: Path, rows: list[tuple[float, str, int]], separator: str, encoding: str
) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator)
    writer.writerow(["number", "word", "count"])
    writer.writerows((repr(number), word, count) for number, word, count in rows)
    found = read_lines(write(tmp_path, text.getvalue(), encoding))
    assert found.dialect.separator == separator
    assert [float(cell) for cell in found.cells["number"]] == [number for number, _, _ in rows]
    assert found.cells["word"] == [word for _, word, _ in rows]
    assert [int(cell) for cell in found.cells["count"]] == [count for _, _, count in rows]
