"""Data sets of people or recordings: each is a natural client whose rows are a time series."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from atoll.core.messages import Array
from atoll.data.files.formats import read_npz
from atoll.data.naming import group_by_id
from atoll.data.published import ARCHIVES, remember, verify
from atoll.data.source import Dataset, Defaults, Source, has_file, make_source
from atoll.errors import DataError


def uci_har(folder: Path | None) -> Source:
    """Activities of 21 people by 561 features of a phone's sensors; the features are published within [-1, 1]."""
    defaults = Defaults(scale="none", blocks="by_class")
    return _by_subject("uci_har", "uci_har.npz", folder, defaults)


def wisdm(folder: Path | None) -> Source:
    """Activities of 36 people by 43 features of a phone's accelerometer; some peaks are missing."""
    defaults = Defaults(blocks="by_class", missing="mean")
    return _by_subject("wisdm", "wisdm_v11.npz", folder, defaults)


def apnea_hrv(folder: Path | None, features: str = "x") -> Source:
    """Minutes with and without apnea of 70 nights by 12 measures of heart rate variability, which are skewed."""
    path = _file("apnea_hrv", "apnea_hrv.npz", folder)
    arrays = _read(path, (features, "y", "recording", "recording_names", "feature_names"))
    groups, _ = group_by_id(arrays["recording"], "recording")
    names = [str(name) for name in arrays["recording_names"]]
    if int(groups.max()) + 1 != len(names):
        raise DataError(
            f"'{path}' names {len(names)} recordings but holds {int(groups.max()) + 1}; put the original there",
            code="recordings-mismatch",
        )
    return make_source(
        arrays[features],
        arrays["y"],
        class_names=("normal", "apnea"),
        feature_names=[str(name) for name in arrays["feature_names"]],
        groups=groups,
        group_names=names,
        # Apnea occurs in episodes, so each part is one block of the night; `by_class` would separate adjacent minutes.
        defaults=Defaults(logarithm=True, blocks="contiguous"),
        what=str(path),
    )


def apnea_hrv_5min(folder: Path | None) -> Source:
    """The same measures over the five minutes around each label."""
    return apnea_hrv(folder, "x_5min")


def _by_subject(name: str, file: str, folder: Path | None, defaults: Defaults) -> Source:
    path = _file(name, file, folder)
    arrays = _read(path, ("x", "y", "subject", "feature_names", "class_names"))
    groups, names = group_by_id(arrays["subject"], "subject")
    return make_source(
        arrays["x"],
        arrays["y"],
        class_names=[str(word) for word in arrays["class_names"]],
        feature_names=[str(word) for word in arrays["feature_names"]],
        groups=groups,
        group_names=names,
        defaults=defaults,
        what=str(path),
    )


def _file(name: str, file: str, folder: Path | None) -> Path:
    if folder is None:
        raise DataError(
            f"data set '{name}' needs the file {file}: name its folder with --data-dir or ATOLL_DATA",
            code="no-data-folder",
        )
    for path in (folder / file, folder / name / file):
        if path.is_file():
            return path
    raise DataError(
        f"data set '{name}' is not in '{folder}': put {file} there, or name its folder with --data-dir",
        code="dataset-files-missing",
    )


def _read(path: Path, needed: tuple[str, ...]) -> dict[str, Array]:
    known = ARCHIVES.get(path.name)
    verify(path, known)
    arrays = read_npz(path, needed)
    remember(path, known)
    return arrays


def _dataset(name: str, file: str, rows: str, classes: int, origin: str, read: Callable[..., Source]) -> Dataset:
    return Dataset("table", rows, classes, origin, read, present=has_file(name, file))


UCI_HAR = _dataset("uci_har", "uci_har.npz", "7,352", 6, "Anguita et al. 2013, 21 subjects", uci_har)
WISDM = _dataset("wisdm", "wisdm_v11.npz", "5,418", 6, "Kwapisz et al. 2010, 36 subjects", wisdm)
WISDM_V11 = _dataset("wisdm_v11", "wisdm_v11.npz", "5,418", 6, "the same as wisdm", wisdm)
APNEA_HRV = _dataset("apnea_hrv", "apnea_hrv.npz", "33,866", 2, "Penzel et al. 2000, 70 nights", apnea_hrv)
APNEA_HRV_5MIN = _dataset(
    "apnea_hrv_5min", "apnea_hrv.npz", "33,866", 2, "the same nights, over 5 minutes", apnea_hrv_5min
)
