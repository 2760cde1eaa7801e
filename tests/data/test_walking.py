"""HAR70+ from made files of its layout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from atoll.data import DataSettings, load
from atoll.data.sources.walking import CODES, FEATURES, WINDOW, har70plus, measures, windows_of
from atoll.errors import DataError
from refusals import refused

HEADER = "timestamp,back_x,back_y,back_z,thigh_x,thigh_y,thigh_z,label\n"


def write_subject(path: Path, windows: int, codes: list[int]) -> None:
    """Waves of 2 Hz on the back, nothing on the thigh; a label a window."""
    lines = []
    for sample in range(windows * WINDOW):
        wave = np.sin(2 * np.pi * 2.0 * sample / 50)
        code = codes[sample // WINDOW % len(codes)]
        lines.append(f"2021-03-24 14:42:{sample % 60:02d}.000,{wave:.6f},0.0,1.0,0.5,0.0,0.0,{code}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(HEADER + "".join(lines))


def test_there_are_161_features_in_order() -> None:
    assert len(FEATURES) == 161 == len(set(FEATURES))


def test_measures_by_hand() -> None:
    wave = np.sin(2 * np.pi * 2.0 * np.arange(WINDOW) / 50)[None]
    found = dict(zip(FEATURES[:20], measures(wave)[0].tolist(), strict=True))
    assert found["back_x mean"] == pytest.approx(0, abs=1e-9)
    assert found["back_x root mean square"] == pytest.approx(np.sqrt(0.5))
    assert found["back_x strongest frequency"] == pytest.approx(2.0) and found["back_x strongest share"] > 0.999
    assert found["back_x repetition after a second"] == pytest.approx(1.0)
    assert found["back_x share below 3 Hz"] > 0.999


def test_a_still_sensor_gives_numbers() -> None:
    found = measures(np.full((2, WINDOW), 0.75))
    assert np.isfinite(found).all() and found[0, 0] == 0.75


def test_a_window_is_what_most_of_its_samples_are() -> None:
    labels = np.array([0] * 100 + [2] * 150 + [1] * 250)
    x, y = windows_of(np.zeros((500, 6)), labels)
    assert x.shape == (2, 161) and y.tolist() == [2, 1]


def test_subjects_are_clients(tmp_path: Path) -> None:
    for subject in ("501", "504", "506"):
        write_subject(tmp_path / "har70plus" / f"{subject}.csv", 20, [1, 6])
    data = load(DataSettings(name="har70plus", only=("501", "504")), 1, tmp_path)
    assert data.names == ["501", "504"] and data.schema.classes == tuple(CODES.values())
    assert sum(data.sizes("501").values()) == 20
    with refused(DataError, "unknown-client", "data.only", "'502'"):
        load(DataSettings(name="har70plus", only=("502",)), 1, tmp_path)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("timestamp,back_x,label\nnow,1,1\n", "column-missing", "'back_y'"),
        (HEADER + "now,1,2,3,4,5,x,1\n", "column-not-numeric", "'x'"),
        (HEADER + "now,1,2,3,4,5,6,2\n", "unknown-class", "2"),
        (HEADER + "now,1,2,3,4,5,6,1\n", "recording-too-short", "250"),
    ],
)
def test_bad_files_are_one_line(tmp_path: Path, text: str, code: str, named: str) -> None:
    path = tmp_path / "501.csv"
    path.write_text(text)
    with refused(DataError, code, path, named):
        har70plus(tmp_path)


def test_missing_files_are_said(tmp_path: Path) -> None:
    with refused(DataError, "no-data-folder", "har70plus"):
        har70plus(None)
    with refused(DataError, "dataset-files-missing", "har70plus", tmp_path):
        har70plus(tmp_path)
