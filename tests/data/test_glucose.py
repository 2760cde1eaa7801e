"""OhioT1DM from made files of its layout."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

import pytest

from atoll.data import DataSettings, load
from atoll.data.sources.glucose import FEATURES, ohio_t1dm, read_subject, rows_of
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused

START = datetime(2027, 1, 30, 23, 0, 0)


def stamp(minutes: float) -> str:
    return (START + timedelta(minutes=minutes)).strftime("%d-%m-%Y %H:%M:%S")


def write_subject(path: Path, values: list[float | None], jitter: float = 0.0) -> None:
    levels = "".join(
        f'<event ts="{stamp(5 * place + jitter)}" value="{value}"/>' for place, value in enumerate(values) if value
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<?xml version="1.0"?><patient id="{path.name[:3]}" weight="99" insulin_type="Novalog">'
        f"<glucose_level>{levels}</glucose_level>"
        f'<basal><event ts="{stamp(0)}" value="1.2"/><event ts="{stamp(60)}" value="2.4"/></basal>'
        f'<bolus><event ts_begin="{stamp(65)}" ts_end="{stamp(65)}" type="normal" dose="3.0"/></bolus>'
        f'<meal><event ts="{stamp(70)}" type="Lunch" carbs="40"/></meal></patient>'
    )


def test_a_row_by_hand(tmp_path: Path) -> None:
    write_subject(tmp_path / "559-ws-training.xml", [100.0 + place for place in range(20)], jitter=1.0)
    x, y = rows_of(*read_subject(tmp_path / "559-ws-training.xml"))
    assert (
        x.shape == (2, 39) == (2, len(FEATURES))
    )  # moments 12 and 13: an hour before and half an hour after are known
    first = dict(zip(FEATURES, x[0].tolist(), strict=True))
    assert first["glucose"] == 112.0 and first["glucose change 9"] == 9.0
    # Basal 2.4 units an hour from minute 60 on, a twelfth of it each five minutes; the bolus comes at minute 65.
    assert first["insulin"] == pytest.approx(0.2) and first["insulin change 1"] == pytest.approx(0.1)
    second = dict(zip(FEATURES, x[1].tolist(), strict=True))
    assert second["insulin"] == pytest.approx(3.2) and second["carbohydrates"] == 0.0
    assert y.tolist() == [3, 3]  # 118 and 119 mg/dl: from 100 to below 140


def test_moments_near_a_gap_are_left_out(tmp_path: Path) -> None:
    values: list[float | None] = [60.0] * 40
    values[25] = None
    write_subject(tmp_path / "559-ws-training.xml", values)
    _, y = rows_of(*read_subject(tmp_path / "559-ws-training.xml"))
    # Moments 12 to 33; those whose hour before (38 - 12 = 25 ... 37) or half hour after (19) meets step 25 are gone.
    assert len(y) == len([m for m in range(12, 34) if m + 6 != 25 and not m - 12 <= 25 <= m])
    assert set(y.tolist()) == {1}


def test_subjects_are_clients_with_their_published_test_part(tmp_path: Path) -> None:
    rng = stream(1, "glucose")
    for subject in ("559", "563"):
        for kind, steps in (("training", 60), ("testing", 40)):
            values = [float(value) for value in rng.uniform(45, 300, steps)]
            write_subject(tmp_path / "OhioT1DM" / kind / f"{subject}-ws-{kind}.xml", values)
    data = load(DataSettings(name="ohio_t1dm"), 1, tmp_path)
    assert data.names == ["559", "563"] and data.schema.features == FEATURES and data.schema.outputs == 7
    assert [data.sizes(name) for name in data.names] == [{"train": 42, "validation": 0, "test": 22}] * 2


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("<patient", "file-damaged", []),
        ('<!DOCTYPE x [<!ENTITY a "b">]><patient/>', "xml-entities", []),
        ("<patient><glucose_level/></patient>", "no-measurements", []),
        (
            '<patient><glucose_level><event ts="yesterday" value="5"/></glucose_level></patient>',
            "file-damaged",
            ["glucose_level", "yesterday"],
        ),
        (
            '<patient><glucose_level><event value="5"/></glucose_level></patient>',
            "file-damaged",
            ["glucose_level", "ts"],
        ),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, code: str, named: list[str]) -> None:
    path = tmp_path / "559-ws-training.xml"
    path.write_text(text)
    with refused(DataError, code, path, *named):
        ohio_t1dm(tmp_path)


def test_missing_files_are_said(tmp_path: Path) -> None:
    with refused(DataError, "no-data-folder", "ohio_t1dm"):
        ohio_t1dm(None)
    with refused(DataError, "dataset-files-missing", "ohio_t1dm", tmp_path):
        ohio_t1dm(tmp_path)
