"""OhioT1DM: glucose, insulin and meals of 12 people; the class is the range of glucose half an hour ahead.

The data set may not be redistributed; it is read from its own files, NUMBER-ws-training.xml and NUMBER-ws-testing.xml,
anywhere below the data folder. A row is a point of the five-minute grid: glucose, insulin and carbohydrates, and the
change of each over the last 1 to 12 steps: 3 x 13 = 39 features. The paper gives the number, and names some
of them in its Eq. 3; the full list and the limits of the seven classes are our interpretation.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from atoll.data.partition import Indices
from atoll.data.source import Dataset, Defaults, Source, has_file, make_source
from atoll.errors import DataError

STEP = 300  # seconds
BACK, AHEAD = 12, 6  # steps
EDGES = (54.0, 70.0, 100.0, 140.0, 180.0, 250.0)  # mg/dl; a value on an edge belongs to the class above
CLASSES = ("below 54", "54 to 70", "70 to 100", "100 to 140", "140 to 180", "180 to 250", "250 and above")
SIGNALS = ("glucose", "insulin", "carbohydrates")
FEATURES = tuple(
    name for signal in SIGNALS for name in (signal, *(f"{signal} change {steps}" for steps in range(1, BACK + 1)))
)
PARTS = {"training": 0, "testing": 2}  # numbers of the parts train and test

Series = npt.NDArray[np.float64]


def ohio_t1dm(folder: Path | None) -> Source:
    """All subjects below the folder; the published split into training and test is the default."""
    if folder is None:
        raise DataError(
            "data set 'ohio_t1dm' needs its XML files: name their folder with --data-dir or ATOLL_DATA",
            code="no-data-folder",
        )
    files = sorted(folder.rglob("*-ws-*.xml"), key=lambda path: path.name)
    if not files:
        raise DataError(
            f"data set 'ohio_t1dm' is not in '{folder}': put its files there, such as 559-ws-training.xml",
            code="dataset-files-missing",
        )
    subjects = sorted({path.name.split("-")[0] for path in files})
    x, y, groups, parts = [], [], [], []
    for path in files:
        subject, _, kind = path.stem.partition("-ws-")
        if kind not in PARTS:
            raise DataError(
                f"'{path}': the name must end in -ws-training.xml or -ws-testing.xml", code="unexpected-file-name"
            )
        rows, labels = rows_of(*read_subject(path))
        x.append(rows)
        y.append(labels)
        groups.append(np.full(len(labels), subjects.index(subject)))
        parts.append(np.full(len(labels), PARTS[kind]))
    return make_source(
        np.concatenate(x).astype(np.float32),
        np.concatenate(y),
        class_names=CLASSES,
        feature_names=FEATURES,
        groups=np.concatenate(groups).astype(np.int64),
        group_names=subjects,
        parts=np.concatenate(parts).astype(np.int64),
        defaults=Defaults(blocks="official"),
        what=str(folder),
    )


def read_subject(path: Path) -> tuple[Series, Series, Series]:
    """Glucose (NaN where none was measured), insulin units and grams of carbohydrates on one five-minute grid."""
    root = _parse(path)
    glucose = list(_events(root, "glucose_level", "ts", "value", path))
    if not glucose:
        raise DataError(f"'{path}' has no glucose measurements; put the original file there", code="no-measurements")
    start = min(time for time, _ in glucose)
    steps = 1 + max(_place(time, start) for time, _ in glucose)
    levels = np.full(steps, np.nan)
    for time, value in glucose:
        levels[_place(time, start)] = value
    insulin, carbohydrates = np.zeros(steps), np.zeros(steps)
    _add(insulin, _events(root, "bolus", "ts_begin", "dose", path), start)
    _add(carbohydrates, _events(root, "meal", "ts", "carbs", path), start)
    insulin += _held(_events(root, "basal", "ts", "value", path), start, steps) / 12  # from units an hour
    return levels, insulin, carbohydrates


def rows_of(glucose: Series, insulin: Series, carbohydrates: Series) -> tuple[Series, Indices]:
    """Features and classes of all points whose glucose is known from an hour before to half an hour after."""
    moments = np.arange(BACK, len(glucose) - AHEAD)
    columns = []
    for signal in (glucose, insulin, carbohydrates):
        columns += [signal[moments], *(signal[moments] - signal[moments - back] for back in range(1, BACK + 1))]
    ahead = glucose[moments + AHEAD]
    x = np.stack(columns, axis=1) if len(moments) else np.zeros((0, len(FEATURES)))
    known = np.isfinite(x).all(axis=1) & np.isfinite(ahead)
    return x[known], np.searchsorted(EDGES, ahead[known], side="right").astype(np.int64)


def _parse(path: Path) -> ElementTree.Element:
    try:
        text = path.read_bytes()
        if b"<!DOCTYPE" in text or b"<!ENTITY" in text:
            raise DataError(
                f"'{path}' defines entities, which the original does not; put the original there", code="xml-entities"
            )
        return ElementTree.fromstring(text)
    except (OSError, ElementTree.ParseError) as error:
        raise DataError(f"'{path}' is not a readable XML file ({error}); copy it again", code="file-damaged") from None


def _events(root: ElementTree.Element, kind: str, when: str, what: str, path: Path) -> Iterable[tuple[float, float]]:
    """Seconds and value of all events of a kind, in file order."""
    for event in root.iterfind(f"./{kind}/event"):
        try:
            time = datetime.strptime(event.attrib[when], "%d-%m-%Y %H:%M:%S")
            value = float(event.attrib[what])
        except (KeyError, ValueError) as error:
            raise DataError(
                f"'{path}': an event of {kind} cannot be read ({error}); copy the file again", code="file-damaged"
            ) from None
        yield (time - datetime(1970, 1, 1)).total_seconds(), value


def _place(time: float, start: float) -> int:
    return round((time - start) / STEP)


def _add(series: Series, events: Iterable[tuple[float, float]], start: float) -> None:
    for time, value in events:
        place = _place(time, start)
        if 0 <= place < len(series):
            series[place] += value


def _held(events: Iterable[tuple[float, float]], start: float, steps: int) -> Series:
    """Each value from its time until the next; 0 before the first."""
    series = np.zeros(steps)
    for time, value in sorted(events):
        place = _place(time, start)
        if place < steps:
            series[max(place, 0) :] = value
    return series


OHIO_T1DM = Dataset(
    "table", "by files", 7, "Marling, Bunescu 2020, 12 subjects", ohio_t1dm, present=has_file("ohio_t1dm", "*-ws-*.xml")
)
