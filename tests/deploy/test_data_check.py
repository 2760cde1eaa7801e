"""The check of a site's own data before it joins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atoll.deploy.data_check import look
from atoll.errors import DataError
from refusals import refused


def test_a_table(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,z,label\n1,2,ill\n3,4,well\n5,6,ill\n")
    found = look(tmp_path, "label", "north")
    assert (found.summary.rows, found.summary.form) == (3, "2 columns")
    assert [column.name for column in found.summary.columns] == ["x", "z"]
    assert found.summary.classes == {"ill": 2, "well": 1} and found.lines() == []
    assert look(tmp_path / "rows.csv", "label", "north") == found


@pytest.mark.parametrize("labels", [("ill", "ill"), ("3", "3")])
def test_one_class_is_enough_for_a_site(tmp_path: Path, labels: tuple[str, str]) -> None:
    (tmp_path / "rows.csv").write_text(f"x,label\n1,{labels[0]}\n2,{labels[1]}\n")
    found = look(tmp_path, "label", "north")
    assert found.summary.classes == {labels[0]: 2} and found.lines() == []


def test_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.zeros((4, 8, 8), np.float32), y=np.array([0, 1, 1, 2]))
    found = look(tmp_path, "label", "north")
    assert (found.summary.rows, found.summary.form) == (4, "images of 1 x 8 x 8")
    assert found.summary.classes == {"0": 1, "1": 2, "2": 1}


def test_all_that_experiments_must_allow_for_is_shown_at_once(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,z,day,label\n1,,2024-03-31,0\n3,red,2024-04-01,1\n")
    found = look(tmp_path, "label", "north")
    assert [problem.code for problem in found.problems] == ["missing-value", "column-not-numeric", "date-column"]
    assert found.settings == {"missing": "mean", "categories": "onehot", "dates": {"day": ["days"]}}
    assert found.summary.rows == 2 and 'missing = "mean"' in found.lines()


def test_what_no_setting_solves_is_refused_with_all_problems(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("x,label\n1,0.5\n,1.5\n")
    with refused(DataError, "continuous-label", "0.5"):
        look(tmp_path, "label", "north")


@pytest.mark.parametrize(
    ("name", "text", "named"),
    [
        ("rows.csv", "", "rows.csv"),
        ("rows.csv", "x,label\n", "rows.csv"),
        ("rows.csv", "x,outcome\n1,0\n2,1\n", "'label'"),
        ("rows.txt", "x,label\n1,0\n", "CSV"),
        ("rows.csv", "x,label\n1,0\n2\n", "line 3"),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, name: str, text: str, named: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=named):
        look(tmp_path, "label", "north")


def test_an_empty_and_a_missing_folder(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").touch()
    with refused(DataError, "data-folder-empty", tmp_path / "empty"):
        look(tmp_path / "empty", "label", "north")
    with refused(DataError, "no-such-data-folder", tmp_path / "none"):
        look(tmp_path / "none", "label", "north")
