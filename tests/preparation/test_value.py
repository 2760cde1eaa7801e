"""The preparation: what is stored, what is refused, and what a raw row becomes; every number by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from atoll.core.messages import Tensors
from atoll.data import Federated
from atoll.errors import DataError, RunDamaged
from atoll.export.graph import PreparedRows
from atoll.preparation.answers import Answers, network_input
from atoll.preparation.images import read_png
from atoll.preparation.tables import RowError
from atoll.preparation.value import ImageForm, Preparation, RawColumn, Statistics, expanded, of_images, of_table, parse
from atoll.rng import stream
from atoll.store.models import Model, load_model, save_model
from refusals import refused

COLUMNS = [
    RawColumn(name="age", unit="years"),
    RawColumn(name="sex", kind="category", words=["(missing)", "f", "m"], coding="onehot"),
    RawColumn(name="ward", kind="category", words=["east", "west"]),
    RawColumn(name="visit", kind="date", parts=["days", "month", "weekday", "hour"], origin="2024-01-01"),
]
KNOWN = Statistics(fill=[40.0] + [0.0] * 8, mean=[50.0] + [0.0] * 8, deviation=[10.0] + [1.0] * 8)
PREPARATION = Preparation(
    kind="table", columns=COLUMNS, scale="federated", statistics=KNOWN, classes=["well", "ill"], ignored=["label"]
)
ROW = {"age": 45, "sex": "m", "ward": "west", "visit": "2024-03-01 06:30"}


def prepared(rows: Any, preparation: Preparation = PREPARATION, **options: str) -> list[list[float]]:
    numbers, _ = network_input(preparation.plain(), rows, **options)
    found: list[list[float]] = PreparedRows(preparation)(torch.from_numpy(numbers)).tolist()
    return found


def refuses(code: str, rows: Any, *named: object, preparation: Preparation = PREPARATION, **options: str) -> None:
    with pytest.raises(RowError) as caught:
        network_input(preparation.plain(), rows, **options)
    text = str(caught.value)
    assert caught.value.code == code and "\n" not in text and all(str(value) in text for value in named), text


def test_a_raw_row_by_hand() -> None:
    # 1 January 2024 was a Monday; 1 March is day 60 of a leap year, counted from 0, and a Friday.
    days = 60 + 6.5 / 24
    assert prepared([ROW]) == [pytest.approx([-0.5, 0, 0, 1, 1, days, 3, 4, 6.5])]
    assert PREPARATION.row_schema.features == tuple(PREPARATION.inputs) and PREPARATION.inputs[1] == "sex=(missing)"


def test_columns_in_any_order_gaps_and_ignored_columns() -> None:
    row = {"label": "ill", "visit": "2024-01-01", "sex": "", "ward": "east", "age": "NA"}
    assert prepared(row) == [pytest.approx([-1, 1, 0, 0, 0, 0, 1, 0, 0])]
    assert prepared({name: [value] for name, value in row.items()}) == prepared(row)


def test_rows_that_do_not_fit() -> None:
    without = {name: value for name, value in ROW.items() if name != "ward"}
    refuses("column-missing", [without], "'ward'")
    refuses("columns-differ", [ROW, without], "row 1", "'ward'")
    refuses("unknown-column", [{**ROW, "pulse": 3}], "'pulse'")
    refuses("unknown-category", [ROW, {**ROW, "sex": "x"}], "row 1", "'sex'", "'x'")
    refuses("unknown-category", [{**ROW, "ward": None}], "row 0", "'ward'")
    refuses("column-not-numeric", [{**ROW, "age": "old"}], "row 0", "'age'", "'old'")
    refuses("column-not-numeric", [{**ROW, "age": math.inf}], "'age'")
    refuses("not-a-date", [{**ROW, "visit": "soon"}], "'visit'", "'soon'")
    refuses("row-shapes-differ", np.zeros((2, 3)), "(2, 3)", "4 values")
    firm = PREPARATION.with_statistics(Statistics(mean=KNOWN.mean, deviation=KNOWN.deviation))
    refuses("missing-value", [{**ROW, "age": None}], "row 0", "'age'", preparation=firm)


def test_what_options_allow() -> None:
    unknown = {**ROW, "sex": "x"}
    assert prepared(unknown, unknown_category="missing")[0][1:4] == [1, 0, 0]
    assert prepared(unknown, unknown_category="zeros")[0][1:4] == [0, 0, 0]
    refuses("unknown-category", [{**ROW, "ward": "north"}], "'north'", unknown_category="zeros")
    assert prepared({**ROW, "pulse": 3}, extra_columns="ignore") == prepared(ROW)


def test_the_training_rows_are_prepared_in_the_same_way() -> None:
    """What `Federated` gives a network equals what the exported arithmetic makes of the raw rows."""
    rng = stream(1, "raw")
    rows = 60
    frame = {
        "site": ["a", "b"] * 30,
        "age": [None if rng.random() < 0.2 else float(rng.normal(50, 9)) for _ in range(rows)],
        "sex": [("f", "m")[int(one)] for one in rng.integers(0, 2, rows)],
        "label": [("well", "ill")[row % 2] for row in range(rows)],
    }
    data = Federated.from_dataframe(
        frame,
        client="site",
        missing="mean",
        categories="onehot",
        logarithm=True,
        split=(1.0, 0.0, 0.0),
        blocks="contiguous",
    )
    raw = [{name: frame[name][row] for name in ("age", "sex")} for row in range(rows) if frame["age"][row] is not None]
    found = np.array(prepared(raw, data.preparation))
    inside = np.concatenate([data.client(name).part("train")[0] for name in ("a", "b")])
    known = [row for name in ("a", "b") for row in range(rows) if frame["site"][row] == name]
    order = [place for place, row in enumerate(known) if frame["age"][row] is not None]
    kept = [row for row in range(rows) if frame["age"][row] is not None]
    by_row = dict(zip(kept, found.tolist(), strict=True))
    np.testing.assert_allclose(inside[order], [by_row[known[place]] for place in order], rtol=1e-6, atol=1e-6)
    # The value for gaps is the mean of the clients' own means, by their rows.
    means = [np.mean([a for a, s in zip(frame["age"], frame["site"], strict=True) if s == n and a]) for n in ("a", "b")]
    assert data.preparation.statistics is not None and data.preparation.statistics.fill is not None
    assert data.preparation.statistics.fill[0] == pytest.approx(np.mean(means), rel=1e-6)


def test_images(tmp_path: Path) -> None:
    preparation = of_images((1, 2, 3), np.dtype(np.uint8), ["no", "yes"])
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    for form in (pixels, pixels[None], pixels[None, None], pixels[None, ..., None]):
        assert np.array_equal(network_input(preparation.plain(), form)[0], pixels[None, None])
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(np.repeat(pixels[..., None], 3, axis=2)).save(tmp_path / "b.png")
    numbers, places = network_input(preparation.plain(), tmp_path)
    assert numbers.shape == (2, 1, 2, 3) and numbers[0].tolist() == numbers[1].tolist() == pixels[None].tolist()
    assert places == [str(tmp_path / "a.png"), str(tmp_path / "b.png")]
    refuses("image-shape", pixels.T, "(3, 2)", "2x3", preparation=preparation)
    refuses("pixel-type", pixels / 255, "float64", "uint8", preparation=preparation)
    Image.fromarray(pixels.T.copy()).save(tmp_path / "c.png")
    refuses("image-shape", tmp_path / "c.png", "c.png", "2x3", "3x2", preparation=preparation)
    (tmp_path / "empty").mkdir()
    refuses("no-images", tmp_path / "empty", "empty", preparation=preparation)


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P"])
def test_png_is_read_as_pillow_reads_it(tmp_path: Path, mode: str) -> None:
    rng = stream(3, "png", mode)
    # A gradient with noise makes Pillow use several of the five filters.
    base = (np.add.outer(np.arange(20) * 5, np.arange(17) * 3) % 256).astype(np.uint8)
    pixels = np.stack([base + rng.integers(0, 3, base.shape).astype(np.uint8) for _ in range(4)], axis=2)
    image = Image.fromarray(pixels, "RGBA").convert(mode)
    image.save(tmp_path / "x.png", optimize=True)
    grey = mode in ("L", "LA")
    wanted = np.asarray(image.convert("L" if grey else "RGB"))
    assert np.array_equal(read_png(tmp_path / "x.png"), wanted[..., None] if grey else wanted)
    data = (tmp_path / "x.png").read_bytes()
    (tmp_path / "cut.png").write_bytes(data[: len(data) // 2])
    with pytest.raises(RowError):
        read_png(tmp_path / "cut.png")


def test_it_is_stored_with_a_model(tmp_path: Path) -> None:
    model = Model({"space": "made"}, Tensors({}), Tensors({}), PREPARATION)
    assert load_model(tmp_path / save_model(tmp_path, model)).preparation == PREPARATION
    assert parse(json.loads(json.dumps(PREPARATION.plain())), "here") == PREPARATION
    assert PREPARATION.plain()["columns"][0] == {"name": "age", "unit": "years"}, "most columns are just a name"


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"classes": 3},
        {"scale": "new"},
        {"unheard": 1},
        {"columns": []},
        {"statistics": {"fill": None, "mean": [1.0], "deviation": [1.0]}},
        {"statistics": {"fill": None, "mean": KNOWN.mean, "deviation": [0.0] * 9}},
        {"statistics": {"fill": [1.0], "mean": [], "deviation": []}},
    ],
)
def test_a_damaged_or_newer_one_is_refused_by_name(change: dict[str, Any]) -> None:
    with refused(DataError, "preparation-format", "net.json"):
        parse(PREPARATION.plain() | change, "net.json")


def test_a_model_file_without_one_is_no_model(tmp_path: Path) -> None:
    from safetensors.numpy import save

    data = save({"weights/w": np.zeros(2, np.float32)}, metadata={"atoll": json.dumps({"architecture": {}})})
    import hashlib

    path = tmp_path / f"{hashlib.sha256(data).hexdigest()[:32]}.safetensors"
    path.write_bytes(data)
    with refused(RunDamaged, "not-a-model", path):
        load_model(path)


def test_expansion_of_windows() -> None:
    colour = RawColumn(name="c", kind="category", words=["b", "r"], coding="onehot")
    whole = {**of_table(["x"], ["0", "1"]).plain(), "columns": [{"name": "x"}, colour.model_dump()]}
    preparation = Preparation.model_validate({**whole, "window": {"steps": 2, "stride": 1}})
    assert preparation.inputs == ["x [0]", "c=b [0]", "c=r [0]", "x [1]", "c=b [1]", "c=r [1]"]
    rows = [{"x": 1, "c": "b"}, {"x": 2, "c": "r"}, {"x": 3, "c": "b"}]
    numbers, places = network_input(preparation.plain(), rows)
    assert numbers.tolist() == [[1, 0, 2, 1], [2, 1, 3, 0]] and [place[-1] for place in places] == ["1", "2"]
    assert expanded(preparation, numbers).tolist() == [[1, 1, 0, 2, 0, 1], [2, 0, 1, 3, 1, 0]]
    assert prepared(rows, preparation) == expanded(preparation, numbers).tolist()
    refuses("series-too-short", rows[:1], "1 rows", "2 consecutive", preparation=preparation)


def test_an_image_form_of_another_range() -> None:
    form = ImageForm(channels=1, height=1, width=2, dtype="float32", largest=16.0)
    preparation = Preparation(kind="image", image=form, classes=["a", "b"])
    assert prepared(np.array([[[8.0, 16.0]]]), preparation) == [[[[0.5, 1.0]]]]


def test_answers_in_a_file_are_no_formulas(tmp_path: Path) -> None:
    """A name that a spreadsheet would calculate gets an apostrophe; a number stays one."""
    classes = ("=1+1", "-2", "@cmd")
    answers = Answers(["=1+1", "-2"], np.eye(3)[:2], classes, "probabilities", ["+a.csv", "b.csv"])
    answers.write(tmp_path / "answers.csv")
    lines = (tmp_path / "answers.csv").read_text().splitlines()
    assert lines == ["row,class,'=1+1,-2,'@cmd", "'+a.csv,'=1+1,1,0,0", "b.csv,-2,0,1,0"]
