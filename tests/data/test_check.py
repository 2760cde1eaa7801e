"""`check`: all problems of all files at once, the settings that solve them, and what the data holds."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll import search
from atoll.config import override, resolve_data
from atoll.data import DataSettings, Federated
from atoll.data.files.agreement import Problem
from atoll.data.files.check import Report, check
from atoll.data.files.suggestions import as_options, as_toml, grouped, merged
from atoll.errors import DataError
from refusals import refused

MESSY = Path(__file__).parent / "messy"
SOLUTION = {
    "exclude": ["island"],
    "dates": {"visit": ["days"]},
    "drop": ["remark"],
    "categories": "onehot",
    "missing": "mean",
}


def put(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def look(place: Path, **values: Any) -> Report:
    return check(DataSettings.model_validate({"folder": str(place), **values}), 1)


def codes(problems: list[Problem]) -> list[str]:
    return sorted({problem.code for problem in problems})


@pytest.fixture(scope="module")
def messy() -> Report:
    return look(MESSY, label="diagnosis")


# -- the messy folder --------------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_found_at_once(messy: Report) -> None:
    found = [(group.code, group.column, group.count) for group in messy.groups]
    assert found == [
        ("empty-file", "", 1),
        ("date-column", "visit", 6),
        ("column-not-numeric", "remark", 5),
        ("column-not-numeric", "country", 6),
        ("missing-value", "sex", 1),
        ("column-not-numeric", "sex", 6),
        ("missing-value", "age", 1),
        ("missing-value", "weight", 1),
        ("too-many-categories", "remark", 1),
        ("missing-value", "pressure", 1),
    ]
    assert all(problem.setting is not None for problem in messy.problems)
    assert messy.settings == SOLUTION and messy.left == []


def test_what_one_should_know(messy: Report) -> None:
    notes = [(note.code, note.column) for note in messy.notes]
    assert ("identifier-column", "patient") in notes and ("constant-column", "country") in notes
    assert {code for code, _ in notes} >= {"label-like-missing", "few-rows", "one-class-client", "dialects-differ"}
    assert messy.advised == {"drop": ["remark", "patient", "country"]}
    dialects = [note.text for note in messy.notes if note.code == "dialects-differ"]
    assert "'south'" in dialects[0] and "';'" in dialects[0] and "','" in dialects[0]
    assert "'west'" in dialects[1] and "cp1252" in dialects[1]


def test_what_the_data_holds(messy: Report) -> None:
    summary = messy.summary
    assert summary is not None
    assert {client.name: client.rows for client in summary.clients} == {
        "east": 40,
        "harbour": 30,
        "north": 52,
        "south": 46,
        "village": 3,
        "west": 34,
    }
    assert summary.classes == {"mild": 32, "none": 126, "severe": 47}
    assert summary.baseline_error == pytest.approx(79 / 205)
    north = next(client for client in summary.clients if client.name == "north")
    assert north.missing == pytest.approx(2 / (52 * 8)) and sum(north.classes.values()) == 52
    columns = {column.name: column for column in summary.columns}
    assert (columns["visit"].kind, columns["visit"].least, columns["visit"].most) == (
        "date",
        "2023-01-08",
        "2024-11-30",
    )
    assert (columns["weight"].least, columns["weight"].most) == (44.6, 110.8)  # of files with commas and with points
    assert columns["sex"].different == 3  # f, m and a gap
    assert json.loads(json.dumps(messy.plain()))["baseline_error"] == summary.baseline_error


def test_one_check_one_edit_one_run(tmp_path: Path, messy: Report) -> None:
    """The settings that the report suggests leave no problem, and the network that is found answers a raw row."""
    experiment = tomllib.loads(as_toml(messy.settings))
    table = {"folder": str(MESSY), "label": "diagnosis", **experiment["data"]}
    again = check(DataSettings.model_validate(table), 1)
    assert again.problems == [] and again.settings == {}
    run = search("fedavg", table, out=tmp_path / "run", rounds=2, workers=0)
    raw = {"patient": 9, "visit": "2024-05-01", "age": 80, "weight": "NA", "pressure": 150.5, "sex": "f"}
    answers = run.predict([{**raw, "country": "NL", "remark": "a new one"}])
    assert answers.labels[0] in ("none", "mild", "severe") and answers.values.shape == (1, 3)
    for name, rows in (("south", 46), ("west", 34), ("north", 52)):  # files are answered as they are
        assert len(run.predict(MESSY / f"{name}.csv").labels) == rows


def test_the_same_settings_as_options(messy: Report) -> None:
    raw: dict[str, Any] = {"data": {"folder": str(MESSY), "label": "diagnosis"}}
    words = shlex.split(as_options(messy.settings))
    for assignment in words[1::2]:
        raw = override(raw, assignment)
    assert set(words[::2]) == {"--set"} and check(*resolve_data(raw)).problems == []


def test_a_run_refuses_with_the_same_report(messy: Report) -> None:
    with refused(DataError, "empty-file", "island.csv", "28 more problems") as caught:
        Federated.from_folder(MESSY, label="diagnosis")
    lines = caught.value.lines()
    assert len(lines) <= 20 and str(len(messy.problems)) in lines[0]
    assert [line for line in lines if line.startswith("- ")] == [line for one in messy.groups for line in one.lines()]
    assert all(line in lines for line in as_toml(SOLUTION).split("\n"))


# -- suggestions -------------------------------------------------------------------------------------------------------


def test_equal_problems_are_one_line(tmp_path: Path) -> None:
    files = {f"c{number:03d}": "x,z,label\n1,1,0\n,1,1\n" for number in range(30)}
    found = look(put(tmp_path, **files))
    assert len(found.problems) == 30 and len(found.groups) == 1
    (line, setting) = found.groups[0].lines(with_settings=True)
    assert "c000.csv' line 3" in line and "29 more" in line and setting.strip() == 'missing = "mean"'
    with refused(DataError, "missing-value") as caught:
        Federated.from_folder(tmp_path)
    assert len(caught.value.lines()) == 1


USUAL = dict.fromkeys("bcd", "x,label\n1,0\n2,1\n3,1\n")
WIDE = dict.fromkeys("bcd", "x,w,label\n1,1,0\n2,1,1\n3,2,1\n")


@pytest.mark.parametrize(
    ("files", "problems", "settings"),
    [
        # An extra column is dropped; a client without a column that the others have is left out.
        (USUAL | {"a": "x,z,label\n1,1,0\n2,2,1\n"}, ["columns-differ"], {"drop": ["z"]}),
        (USUAL | {"a": "y,label\n0,1\n1,0\n"}, ["columns-differ"], {"exclude": ["a"]}),
        (USUAL | {"a": "label\n0\n1\n"}, ["no-feature-columns"], {"exclude": ["a"]}),
        (USUAL | {"a": "x,outcome\n0,1\n1,0\n"}, ["label-column-missing"], {"exclude": ["a"]}),
        (USUAL | {"a": "x,label\n0,1\n"}, ["too-few-rows"], {"exclude": ["a"]}),
        (USUAL | {"a": "x,label\n0,1\n1,\n"}, ["label-missing"], {"exclude": ["a"]}),
        (USUAL | {"a": "x,label\n0,0.5\n1,1.5\n"}, ["continuous-label"], {"exclude": ["a"]}),
        # Dates in one file and numbers in the others: only leaving the column out helps.
        (WIDE | {"a": "x,w,label\n2024-01-02,1,1\n2024-01-03,2,0\n"}, ["date-column"], {"drop": ["x"]}),
        (WIDE | {"a": "x,w,label\n03/31/2024,1,1\n03/04/2024,2,0\n"}, ["date-order"], {"drop": ["x"]}),
    ],
)
def test_suggestions_solve_what_they_can(
    tmp_path: Path, files: dict[str, str], problems: list[str], settings: dict[str, Any]
) -> None:
    found = look(put(tmp_path, **files))
    assert codes(found.problems) == problems and found.settings == settings and found.left == []
    assert look(tmp_path, **settings).problems == []


def test_what_is_not_needed_is_not_suggested(tmp_path: Path) -> None:
    """A gap in a file that is left out for another reason; a column whose words are too many over all clients."""
    words = {name: "x,label\n" + "".join(f"{name}{row},{row % 2}\n" for row in range(9)) for name in "bcd"}
    other = {name: text.replace("x,", "x,w,", 1).replace(f"\n{name}", f"\n1,{name}") for name, text in words.items()}
    found = look(put(tmp_path, a="x,w,label\n,a,0\n", **other), max_categories=10)
    assert codes(found.problems) == ["column-not-numeric", "missing-value", "too-few-rows"]
    assert found.settings == {"exclude": ["a"], "drop": ["w"]}


def test_settings_that_are_there_already_are_kept(tmp_path: Path) -> None:
    put(tmp_path, a="i,j,k,label\nu,p,1,0\nv,q,,1\n", b="i,j,k,label\nu,p,1,0\nv,q,2,1\n", c="")
    found = look(tmp_path, drop=["i"], exclude=["b"])
    assert found.settings == {"exclude": ["b", "c"], "categories": "onehot", "missing": "mean"}
    problems = [Problem("x", "text", ("drop", ["j"]), "j"), Problem("y", "text", ("dates.j", ["days"]), "j")]
    assert merged({"drop": ["i"]}, problems) == {"drop": ["i", "j"]}


def test_what_no_setting_solves_is_left(tmp_path: Path) -> None:
    found = look(put(tmp_path, a="x,z\n1,0\n,1\n", b="x,z\n1,0\n2,1\n"))
    assert codes(found.problems) == codes(found.left) == ["label-column-missing"] and found.settings == {}
    assert found.summary is not None and found.summary.rows == 4 and found.summary.baseline_error is None
    cased = look(put(tmp_path, a="x,Label\n1,0\n2,1\n", b="x,Label\n1,0\n2,1\n"))
    assert cased.settings == {"label": "Label"} and cased.left == []


@pytest.mark.parametrize(
    ("header", "row", "label"),
    [("x,outcome", "{0},{1}", "outcome"), ("kind,x", "{2},{0}", "kind"), ("remark,kind,x", "r{0},{2},1", "kind")],
)
def test_the_likely_label_is_suggested_with_all_other_problems(
    tmp_path: Path, header: str, row: str, label: str
) -> None:
    rows = [row.format(number, number % 2, "ab"[number % 2]) for number in range(30)]
    put(tmp_path, a="\n".join([header, *rows, ""]), b="\n".join([header, *rows, ""]), c="")
    found = look(tmp_path)
    assert found.settings["label"] == label and found.settings["exclude"] == ["c"] and found.left == []
    assert found.summary is not None and found.summary.clients[0].classes
    assert look(tmp_path, **found.settings).problems == []


def test_names_that_toml_must_quote(tmp_path: Path) -> None:
    name = 'first "visit", år'
    put(tmp_path, a=f'"{name.replace(chr(34), chr(34) * 2)}",label\n2024-01-01,0\n2024-01-02,1\n')
    found = look(tmp_path)
    assert found.settings == {"dates": {name: ["days"]}}
    assert tomllib.loads(as_toml(found.settings)) == {"data": found.settings}


def test_groups_have_a_count_and_all_settings() -> None:
    problems = [Problem("empty-file", f"'{name}' is empty", ("exclude", [name])) for name in "abc"]
    (group,) = grouped(problems)
    assert group.count == 3 and group.settings == {"exclude": ["a", "b", "c"]} and "'a'" in group.lines()[0]


# -- other data --------------------------------------------------------------------------------------------------------


def test_a_data_set_of_the_catalogue() -> None:
    found = check(DataSettings(name="wine", clients=4, holdout_clients=("client-002",)), 1)
    assert found.problems == [] and found.held_out == ["client-002"] and found.summary is not None
    assert len(found.summary.clients) == 4 and len(found.summary.columns) == 13 and found.summary.rows == 178
    assert found.summary.columns[0].name == "alcohol" and found.summary.columns[0].most == pytest.approx(14.83)
    images = check(DataSettings(name="digits", clients=3), 1).summary
    assert images is not None and images.form == "images of 1 x 8 x 8" and images.columns == []
    assert codes(check(DataSettings(name="wine", clients=900), 1).problems) == ["too-many-clients"]


def test_archives_and_images(tmp_path: Path) -> None:
    for name in ("a", "b"):
        x = np.array([[1.0, np.nan], [3.0, 4.0]])
        np.savez(tmp_path / f"{name}.npz", x=x, y=np.array([0, 1]), class_names=np.array(["no", "yes"]))
    found = look(tmp_path)
    assert found.settings == {"missing": "mean"} and found.summary is not None
    assert found.summary.classes == {"no": 2, "yes": 2} and found.summary.clients[0].missing == 0.25
    assert [(one.name, one.least, one.most, one.missing) for one in found.summary.columns] == [
        ("x0", 1.0, 3.0, 0.0),
        ("x1", 4.0, 4.0, 0.5),
    ]


def test_clients_of_one_file(tmp_path: Path) -> None:
    rows = "".join(f"{'ab'[row % 2]},{row},{row % 3}\n" for row in range(12))
    (tmp_path / "all.csv").write_text(f"who,x,label\n{rows}c,1,1\n")
    found = look(tmp_path / "all.csv", client_column="who")
    assert codes(found.problems) == ["too-few-rows"] and found.settings == {"exclude": ["c"]}
    assert found.summary is not None
    assert {one.name: one.rows for one in found.summary.clients} == {"a": 6, "b": 6, "c": 1}


def test_test_rows_and_words_that_only_they_have(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    put(tmp_path / "data", a="c,label\nu,0\nv,1\n", b="c,label\nu,0\nv,1\n")
    put(tmp_path, later="c,label\nw,0\n,1\n")
    settings = {"test": str(tmp_path / "later.csv"), "categories": "onehot"}
    found = look(tmp_path / "data", **settings)
    assert codes(found.problems) == ["missing-value"] and "data.test" in found.problems[0].text
    found = look(tmp_path / "data", **settings, missing="mean")
    assert found.problems == [] and found.test_rows == 2
    assert [note.column for note in found.notes if note.code == "unseen-category"] == ["c"]
    held = look(tmp_path / "data", test=settings["test"], missing="mean", holdout_clients=["b"], categories="code")
    assert codes(held.left) == ["unknown-category"]  # as a code, the word is none of those known


def test_windows_that_overlap_are_pointed_out(tmp_path: Path) -> None:
    put(tmp_path, a="x,label\n" + "".join(f"{row},{row % 2}\n" for row in range(10)))
    found = look(tmp_path, window=3, window_step=1)
    assert found.problems == [] and found.advised["blocks"] == "contiguous"
    assert "blocks" not in look(tmp_path, window=3).advised
