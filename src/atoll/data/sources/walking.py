"""HAR70+: activities of 18 older adults by two accelerometers, as windows of five seconds with 161 features each.

The data set is not included; it is read from its own files, 501.csv to 518.csv (timestamp, back_x ... thigh_z, label),
in the data folder or in har70plus/ below it. The paper gives the number of features, 161; the list is our
interpretation: 20 measures of each of 8 signals (six axes, and the length of each sensor's vector), and the correlation
of the two lengths.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from atoll.data.files.tables import read_table
from atoll.data.partition import Indices
from atoll.data.source import Dataset, Defaults, Source, has_file, make_source
from atoll.errors import DataError

WINDOW, RATE = 250, 50.0  # samples: five seconds at 50 Hz
AXES = ("back_x", "back_y", "back_z", "thigh_x", "thigh_y", "thigh_z")
SIGNALS = (*AXES, "back", "thigh")
CODES = {1: "walking", 3: "shuffling", 4: "stairs up", 5: "stairs down", 6: "standing", 7: "sitting", 8: "lying"}
LEVELS = ("mean", "deviation", "smallest", "largest", "median", "lower quartile", "upper quartile", "root mean square")
SHAPES = (
    "skewness",
    "kurtosis",
    "mean deviation",
    "mean step",
    "largest step",
    "crossings",
    "repetition after a second",
)
WAVES = ("strongest frequency", "strongest share", "spectral centre", "spectral entropy", "share below 3 Hz")
MEASURES = (*LEVELS, *SHAPES, *WAVES)
FEATURES = (*(f"{signal} {measure}" for signal in SIGNALS for measure in MEASURES), "back and thigh correlation")

Values = npt.NDArray[np.float64]


def har70plus(folder: Path | None) -> Source:
    """One client per subject; the paper leaves out 502, 503 and 506: name the others in data.only."""
    needed = "data set 'har70plus' needs its files 501.csv to 518.csv"
    if folder is None:
        raise DataError(f"{needed}: name their folder with --data-dir or ATOLL_DATA", code="no-data-folder")
    files = _files(folder)
    if not files:
        raise DataError(f"{needed}: they are not in '{folder}'", code="dataset-files-missing")
    x, y, groups = [], [], []
    for place, path in enumerate(files):
        rows, labels = windows_of(*read_subject(path))
        if not len(labels):
            raise DataError(
                f"'{path}' has fewer than {WINDOW} consecutive samples; put the original file there",
                code="recording-too-short",
            )
        x.append(rows)
        y.append(labels)
        groups.append(np.full(len(labels), place))
    return make_source(
        np.concatenate(x).astype(np.float32),
        np.concatenate(y),
        class_names=tuple(CODES.values()),
        feature_names=FEATURES,
        groups=np.concatenate(groups).astype(np.int64),
        group_names=[path.stem for path in files],
        defaults=Defaults(blocks="by_class"),
        what=str(folder),
    )


def read_subject(path: Path) -> tuple[Values, Indices]:
    """Samples x axes, and the class number of each sample."""
    table = read_table(path)
    for name in (*AXES, "label"):
        if name not in table.columns:
            raise DataError(f"'{path}' has no column '{name}'; put the original file there", code="column-missing")
    try:
        values = np.array([table.column(name) for name in AXES], np.float64).T
        codes = [int(float(text)) for text in table.column("label")]
    except ValueError as error:
        raise DataError(
            f"'{path}': {error}; a measurement or label is not a number", code="column-not-numeric"
        ) from None
    known = list(CODES)
    for code in set(codes) - set(known):
        raise DataError(
            f"'{path}' has the unknown label {code}; known: {', '.join(map(str, known))}", code="unknown-class"
        )
    return values, np.array([known.index(code) for code in codes], np.int64)


def windows_of(values: Values, labels: Indices) -> tuple[Values, Indices]:
    """Features of consecutive windows; a window's class is that of most of its samples, the lowest in a tie."""
    count = len(labels) // WINDOW
    cut = values[: count * WINDOW].reshape(count, WINDOW, len(AXES))
    lengths = np.stack([np.linalg.norm(cut[:, :, :3], axis=2), np.linalg.norm(cut[:, :, 3:], axis=2)], axis=2)
    signals = np.concatenate([cut, lengths], axis=2)
    each = [measures(signals[:, :, place]) for place in range(signals.shape[2])]
    together = _correlation(lengths[:, :, 0], lengths[:, :, 1])
    counts = np.zeros((count, len(CODES)), np.int64)
    np.add.at(counts, (np.repeat(np.arange(count), WINDOW), labels[: count * WINDOW]), 1)
    return np.concatenate([*each, together[:, None]], axis=1), counts.argmax(axis=1)


def measures(signal: Values) -> Values:
    """The measures of one signal: windows x MEASURES."""
    mean, deviation = signal.mean(axis=1), signal.std(axis=1)
    centred = signal - mean[:, None]
    scaled = centred / np.where(deviation > 0, deviation, 1.0)[:, None]
    steps = np.abs(np.diff(signal, axis=1))
    crossings = (np.diff(np.signbit(centred), axis=1)).sum(axis=1)
    low, middle, high = np.percentile(signal, [25, 50, 75], axis=1)
    second = int(RATE)
    columns = [mean, deviation, signal.min(axis=1), signal.max(axis=1), middle, low, high]
    columns += [np.sqrt((signal**2).mean(axis=1)), (scaled**3).mean(axis=1), (scaled**4).mean(axis=1)]
    columns += [np.abs(centred).mean(axis=1), steps.mean(axis=1), steps.max(axis=1), crossings.astype(np.float64)]
    columns += [_correlation(signal[:, :-second], signal[:, second:]), *_spectrum(centred)]
    return np.stack(columns, axis=1)


def _spectrum(centred: Values) -> list[Values]:
    power = np.abs(np.fft.rfft(centred, axis=1)[:, 1:]) ** 2
    frequency = np.fft.rfftfreq(centred.shape[1], 1 / RATE)[1:]
    total = power.sum(axis=1)
    share = power / np.where(total > 0, total, 1.0)[:, None]
    entropy = -(share * np.log(np.where(share > 0, share, 1.0))).sum(axis=1)
    strongest = share.argmax(axis=1)
    return [frequency[strongest], share.max(axis=1), share @ frequency, entropy, share[:, frequency < 3].sum(axis=1)]


def _correlation(one: Values, other: Values) -> Values:
    """Of each row; 0 if one of the two is constant."""
    a, b = one - one.mean(axis=1, keepdims=True), other - other.mean(axis=1, keepdims=True)
    scale = np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1))
    found: Values = np.divide((a * b).sum(axis=1), scale, out=np.zeros(len(a)), where=scale > 1e-300)
    return found


def _files(folder: Path) -> list[Path]:
    for place in (folder / "har70plus", folder):
        found = sorted(path for path in place.glob("5[0-9][0-9].csv") if path.is_file())
        if found:
            return found
    return []


HAR70PLUS = Dataset(
    "table",
    "by files",
    7,
    "Ustad et al. 2023, 18 subjects",
    har70plus,
    present=has_file("har70plus", "5[0-9][0-9].csv"),
)
