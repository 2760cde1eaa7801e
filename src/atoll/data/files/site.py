"""One site's own data, where nobody sees the data of all: described, agreed upon, and prepared in the same words.

    describe   on the site: columns or shapes, and the classes there are. No row leaves.
    agree      on the server (`agreement.py`): the form that all sites' data has
    prepare    on the site: its rows in that form, split by the run's seed and the site's name; what leaves are the
               sizes of the parts, the moments for `scale = "federated"`, and label counts where the site allows it

The functions are those that read a folder of all clients, so the same files give the same numbers here and there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from atoll.core.messages import Array, Payload
from atoll.data.federated import Federated
from atoll.data.files.folder import check, check_rows, words
from atoll.data.files.formats import read_npz
from atoll.data.files.images import SUFFIXES, look_at, pixels
from atoll.data.files.tables import CsvTable, class_labels, features_of, one_table, read_csv, words_of
from atoll.data.loading import preparation
from atoll.data.partition import natural
from atoll.data.preprocess import Moments, Scaling, fit, moments, to_float
from atoll.data.rows import prepare as split_and_fill
from atoll.data.settings import SITES as SITES
from atoll.data.settings import DataSettings
from atoll.data.source import Source, make_source
from atoll.errors import DataError


@dataclass(frozen=True)
class SiteFiles:
    """Where a site's rows are: one CSV file, one NPZ file, or pictures as class/name.png."""

    kind: str
    paths: list[Path]


def find_files(place: Path) -> SiteFiles:
    """A site is one client: one table, one archive, or one folder of pictures."""
    if not place.exists():
        raise DataError(
            f"'{place}' does not exist; name the file or folder of this site's data", code="no-such-data-folder"
        )
    candidates = [place] if place.is_file() else sorted(path for path in place.iterdir() if path.is_file())
    found = [path for path in candidates if path.suffix.lower() in (".csv", ".npz") and not path.name.startswith(".")]
    if len(found) > 1:
        raise DataError(
            f"'{place}' holds {len(found)} CSV or NPZ files; a site is one client: keep one file there",
            code="several-site-files",
        )
    if found:
        return SiteFiles(found[0].suffix.lower().removeprefix("."), found)
    shown = sorted(path for path in place.glob("*/*") if path.suffix.lower() in SUFFIXES and path.is_file())
    shown = [path for path in shown if not any(part.startswith(".") for part in path.relative_to(place).parts)]
    if not shown:
        raise DataError(
            f"'{place}' holds no data: put one CSV or NPZ (x, y) file there, or pictures as class/name.png",
            code="no-data-files",
        )
    return SiteFiles("pictures", shown)


def describe(place: Path, settings: DataSettings) -> Payload:
    """What the server is told of a site's data before a run: enough to see whether all sites' data is of one form."""
    files = find_files(place)
    if files.kind == "csv":
        return _describe_table(read_csv(files.paths[0]), settings)
    if files.kind == "npz":
        return _describe_archive(files.paths[0], settings)
    size, grey = look_at(files.paths)
    classes = sorted({path.parent.name for path in files.paths})
    return {"kind": "pictures", "size": list(size), "grey": grey, "labels": classes}


def _describe_table(table: CsvTable, settings: DataSettings) -> Payload:
    features, text = features_of(table, settings.label)
    check_rows(len(table.rows), table.path)
    labels = class_labels([table], settings.label)
    one_table(
        table,
        settings.label,
        features,
        {name: words_of(table, name) for name in text} if settings.categories != "refuse" else {},
        settings.categories,
        settings.missing or "refuse",
    )  # what cannot be read is said now
    return {
        "kind": "csv",
        "features": features,
        "text": {name: words_of(table, name) for name in text},
        "numbered": labels.dtype.kind == "i",
        "labels": np.unique(labels).tolist(),
    }


def _describe_archive(path: Path, settings: DataSettings) -> Payload:
    arrays = read_npz(path, ("x", "y"), ("feature_names", "class_names"))
    check(path, arrays, path, arrays, settings.missing or "refuse")
    x, y = arrays["x"], arrays["y"]
    return {
        "kind": "npz",
        "shape": list(x.shape[1:]),
        "dtype": x.dtype.name if x.ndim > 2 else "",  # bytes are divided by 255 and floats are not
        "features": words(arrays, "feature_names"),
        "classes": words(arrays, "class_names"),
        "numbered": y.dtype.kind != "U",
        "labels": np.unique(y).tolist(),
    }


def read(place: Path, form: Payload, settings: DataSettings, name: str) -> Source:
    """The site's rows in the form that was agreed upon."""
    files = find_files(place)
    if files.kind != form["kind"]:
        raise DataError(
            f"'{place}' holds {files.kind} data; the run began with {form['kind']}: put that back", code="data-changed"
        )
    x, labels, features = _rows(files, form, settings)
    return make_source(
        x,
        _class_numbers(labels, form, str(place)),
        class_names=form["classes"],
        feature_names=features,
        groups=np.zeros(len(labels), np.int64),
        group_names=[name],
        what=f"'{place}'",
    )


def _rows(files: SiteFiles, form: Payload, settings: DataSettings) -> tuple[Array, Array, list[str] | None]:
    path = files.paths[0]
    if files.kind == "csv":
        table = read_csv(path)
        if sorted(features_of(table, settings.label)[0]) != sorted(form["features"]):
            raise DataError(
                f"'{path}': its columns are not those it had when the run began; put them back", code="data-changed"
            )
        rule, missing = settings.categories, settings.missing or "refuse"
        x, names = one_table(table, settings.label, form["features"], form["text"], rule, missing)
        return x, class_labels([table], settings.label), names
    if files.kind == "npz":
        arrays = read_npz(path, ("x", "y"))
        return arrays["x"], arrays["y"], form["features"]
    return pixels(files.paths, form["grey"]), np.array([path.parent.name for path in files.paths]), None


def _class_numbers(labels: Array, form: Payload, place: str) -> Array:
    """The labels as places in the agreed list of classes."""
    if form["given"]:  # class names came with the data: whole numbers are class numbers already
        return labels
    number = {label: code for code, label in enumerate(form["labels"])}
    found, inverse = np.unique(labels, return_inverse=True)
    plain = [int(label) if form["numbered"] else str(label) for label in found.tolist()]
    for label in plain:
        if label not in number:
            raise DataError(
                f"'{place}': label '{label}' was not there when the run began; put the data back", code="data-changed"
            )
    return np.array([number[label] for label in plain], dtype=np.int64)[inverse]


@dataclass(frozen=True)
class Prepared:
    """A site's rows, split and filled but not scaled by anybody else's numbers."""

    federated: Federated
    scale: str
    logarithm: bool

    def moments(self) -> Moments | None:
        """What leaves the site for `scale = "federated"`."""
        if self.scale != "federated":
            return None
        held = self.federated.holdings
        return moments(to_float(np.take(held.x, held.rows_of(0, "train"), axis=0), self.logarithm))

    def scaled(self, mean: Array, deviation: Array) -> Federated:
        """The site's data as its networks see it; the arrays are the pooled scaling of all sites (or empty)."""
        held = self.federated.holdings
        scaling = Scaling(self.logarithm, mean, deviation)
        if self.scale == "client":
            own = np.take(held.x, held.rows_of(0, "train"), axis=0)
            scaling = fit("client", self.logarithm, 1, lambda _: own)
        return Federated(self.federated.schema, replace(held, scaling=scaling))


def prepare(place: Path, form: Payload, settings: DataSettings, name: str, seed: int) -> Prepared:
    """The site's own split and gaps filled, by the same rules as where all clients' data is in one place."""
    source = read(place, form, settings, name)
    rules = preparation(settings, source)
    assert source.groups is not None
    held = split_and_fill(source, natural(source.groups), [name], replace(rules, scale="none"), seed)
    return Prepared(Federated(source.schema, held), rules.scale, rules.logarithm)
