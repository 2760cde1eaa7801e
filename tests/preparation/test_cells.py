"""Cells of tables: gaps, numbers and dates, cell by cell and as whole columns."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.preparation.cells import DATE_PARTS, MISSING_WORDS, is_missing, number_column, to_date, to_number

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32).filter(lambda value: abs(value) <= 3.4e38)


@pytest.mark.parametrize(
    ("cell", "decimal", "number"),
    [
        ("1.5", ".", 1.5),
        (" -2e3 ", ".", -2000.0),
        ("1,5", ",", 1.5),
        ("1,5e2", ",", 150.0),
        ("7", ",", 7.0),
        (True, ".", 1.0),
        ("1,5", ".", None),
        ("1.5", ",", None),
        ("1.234,5", ",", None),
        ("inf", ".", None),
        ("-Infinity", ".", None),
        ("nan", ".", None),
        ("1_000", ".", None),
        ("0x1A", ".", None),
        ("1e39", ".", None),
        ("", ".", None),
        (10**400, ".", None),
        (date(2024, 3, 31), ".", None),
        (None, ".", None),
    ],
)
def test_what_is_a_number(cell: Any, decimal: str, number: float | None) -> None:
    assert to_number(cell, decimal) == number
    values, wrong = number_column([cell], ("never",), decimal)
    if number is None and not is_missing(cell, ("never",)):
        assert wrong == 0
    elif number is not None:
        assert wrong is None and values.tolist() == [number]


@given(st.lists(FINITE, min_size=1, max_size=20), st.sampled_from([".", ","]))
def test_written_numbers_are_read_back(numbers: list[float], decimal: str) -> None:
    words = [repr(number).replace(".", decimal) for number in numbers]
    assert [to_number(word, decimal) for word in words] == numbers
    values, wrong = number_column(words, MISSING_WORDS, decimal)
    assert wrong is None and values.tolist() == numbers


CELLS = st.one_of(
    st.sampled_from(["", "NA", "?", "1_0", "inf", "nan", "-999", "x", "1,5", "1.5", "1e39", " 7 ", "0x1"]),
    FINITE.map(repr),
    st.none(),
    st.integers(-5, 5),
    st.floats(),
    st.booleans(),
)


@given(st.lists(CELLS, max_size=8), st.sampled_from([".", ","]), st.sampled_from([MISSING_WORDS, ("", "-999")]))
def test_a_whole_column_is_read_as_its_cells_are(cells: list[Any], decimal: str, words: tuple[str, ...]) -> None:
    values, wrong = number_column(cells, words, decimal)
    gaps = [is_missing(cell, words) for cell in cells]
    each = [to_number(cell, decimal) for cell in cells]
    bad = [row for row, number in enumerate(each) if number is None and not gaps[row]]
    assert wrong == (bad[0] if bad else None)
    if not bad:
        expected = [np.nan if gap else number for gap, number in zip(gaps, each, strict=True)]
        assert np.array_equal(values, np.array(expected, float), equal_nan=True)


@pytest.mark.parametrize(
    ("cell", "order", "moment"),
    [
        ("2024-03-31", "dmy", datetime(2024, 3, 31)),
        ("2024/3/31", "mdy", datetime(2024, 3, 31)),
        ("2024-03-31T14:30:05Z", "dmy", datetime(2024, 3, 31, 14, 30, 5)),
        ("2024-03-31 14:30", "mdy", datetime(2024, 3, 31, 14, 30)),
        ("31.3.2024", "dmy", datetime(2024, 3, 31)),
        ("31.03.2024", "mdy", datetime(2024, 3, 31)),  # with dots the day is first, always
        ("04/03/2024", "dmy", datetime(2024, 3, 4)),
        ("04/03/2024", "mdy", datetime(2024, 4, 3)),
        ("03/31/2024", "mdy", datetime(2024, 3, 31)),
        (date(2024, 3, 31), "dmy", datetime(2024, 3, 31)),
        ("03/31/2024", "dmy", None),
        ("2024-02-30", "dmy", None),
        ("2024-03", "dmy", None),
        ("31.03.24", "dmy", None),
        ("20240331", "dmy", None),
        ("2024-03-31 noon", "dmy", None),
        (20240331, "dmy", None),
    ],
)
def test_what_is_a_date(cell: Any, order: str, moment: datetime | None) -> None:
    assert to_date(cell, order) == moment


def test_the_parts_of_a_date() -> None:
    """31 March 2024 was a Sunday, ninety days after New Year."""
    moment, origin = datetime(2024, 3, 31, 18, 30), datetime(2024, 1, 1)
    parts = {name: part(moment, origin) for name, part in DATE_PARTS.items()}
    assert parts == {"days": 90 + 18.5 / 24, "month": 3, "weekday": 6, "hour": 18.5}


@pytest.mark.parametrize("cell", ["", " ", "NA", "n/a", "NaN", "null", "None", "?", None, float("nan"), np.nan])
def test_what_is_missing(cell: Any) -> None:
    assert is_missing(cell)


@pytest.mark.parametrize("cell", ["0", "-", "nil", 0, False, 0.0, "not known"])
def test_what_is_not_missing(cell: Any) -> None:
    assert not is_missing(cell)
