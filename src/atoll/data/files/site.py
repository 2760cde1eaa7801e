"""One site's own data: described for the server, then read in the agreed form and prepared beside the files.

What leaves the site: its description, the sizes of the parts, the moments and the values for gaps with `scale =
"federated"`, and label counts where the site allows it. A site reads with the same code as a folder, so the same files
give the same numbers either way.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from atoll.core.messages import Array
from atoll.data.federated import Federated
from atoll.data.files.agreement import Agreement, ClientFiles, DataDescription, first_problem
from atoll.data.files.folder import data_files, open_file
from atoll.data.files.images import ImageFolder
from atoll.data.loading import preparation_rules
from atoll.data.partition import natural
from atoll.data.preprocess import Moments, Scaling, fit, moments, to_float
from atoll.data.private import PrivateRows
from atoll.data.rows import PreparationRules, common_statistics, completed
from atoll.data.rows import prepare as split_and_fill
from atoll.data.settings import DataSettings
from atoll.data.source import Source, make_source
from atoll.errors import DataError
from atoll.rng import secret_stream


def open_site(place: Path, settings: DataSettings) -> ClientFiles:
    """A site is one client: one table, one archive, or one folder of images."""
    if not place.exists():
        raise DataError(
            f"'{place}' does not exist; name the file or folder of this site's data", code="no-such-data-folder"
        )
    found = data_files(place)
    if len(found) > 1:
        raise DataError(
            f"'{place}' holds {len(found)} data files; a site is one client: keep one file there",
            code="several-site-files",
        )
    if found:
        return open_file(found[0], settings)
    images = ImageFolder.open(place)
    if not images.images:
        raise DataError(
            f"'{place}' holds no data: put one CSV, Parquet or NPZ (x, y) file there, or images as class/name.png",
            code="no-data-files",
        )
    return images


def files_digest(place: Path) -> str:
    """Of the bytes of the site's files, whatever a run's settings. Images are named, because folders are classes."""
    paths = data_files(place) or ImageFolder.open(place).images
    digest = hashlib.sha256()
    for path in paths:
        name = f"{path.parent.name}/{path.name}" if len(paths) > 1 else ""
        with open(path, "rb") as file:
            digest.update(f"{name}:{hashlib.file_digest(file, 'sha256').hexdigest()};".encode())
    return digest.hexdigest()


def describe(place: Path, settings: DataSettings) -> DataDescription:
    """What the server learns of a site's data before a run. No row is part of it."""
    files = open_site(place, settings)
    first_problem(files.problems(settings))
    return files.describe(settings)


def read(place: Path, agreement: Agreement, settings: DataSettings, name: str) -> Source:
    """The site's rows in the agreed form."""
    files = open_site(place, settings)
    if files.kind != agreement.kind:
        raise DataError(
            f"'{place}' holds {files.kind} data; the run started with {agreement.kind}: restore it", code="data-changed"
        )
    x, y = files.read(agreement, settings)
    return make_source(
        x,
        y,
        class_names=agreement.classes,
        preparation=agreement.preparation,
        groups=np.zeros(len(y), np.int64),
        group_names=[name],
        what=f"'{place}'",
    )


@dataclass(frozen=True)
class Prepared:
    """A site's rows, split and with gaps filled, before the scaling that all sites share."""

    federated: Federated
    rules: PreparationRules

    def moments(self, private: PrivateRows | None = None) -> Moments | None:
        """What leaves the site for `scale = "federated"`; with `private` with noise that cannot be computed again."""
        if self.rules.scale != "federated":
            return None
        held = self.federated.client_rows
        values = to_float(np.take(held.x, held.rows_of(0, "train"), axis=0), self.rules.logarithm)
        if private is None:
            return moments(values)
        return private.moments(values, held.preparation, self.rules.logarithm, secret_stream())

    def fill(self) -> Array | None:
        """The site's values for gaps. They leave it together with the moments, and only then."""
        held = self.federated.client_rows
        return held.fill[0] if len(held.fill) and self.rules.scale == "federated" else None

    def scaled(self, mean: Array, deviation: Array) -> Federated:
        """The site's data as its networks receive it; the arrays are the scaling of all sites together, or empty."""
        held = self.federated.client_rows
        logarithm = self.rules.logarithm
        scaling = Scaling(logarithm, mean, deviation)
        if self.rules.scale == "client":
            own = np.take(held.x, held.rows_of(0, "train"), axis=0)
            scaling = fit("client", logarithm, 1, lambda _: own)
        known = common_statistics(self.rules, held.fill[0] if len(held.fill) else None, scaling)
        preparation = completed(held.preparation, self.rules, known)
        return Federated(replace(held, scaling=scaling, preparation=preparation))


def prepare(place: Path, agreement: Agreement, settings: DataSettings, name: str, seed: int) -> Prepared:
    """Read, split and fill the site's rows by the rules that apply to a folder of all clients."""
    source = read(place, agreement, settings, name)
    rules = preparation_rules(settings, source)
    assert source.groups is not None
    held = split_and_fill(source, natural(source.groups), [name], replace(rules, scale="none"), seed)
    return Prepared(Federated(held), rules)
