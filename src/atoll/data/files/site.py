"""One site's own data: described for the server, then read in the agreed form and prepared beside the files.

What leaves the site: its description, the sizes of the parts, the moments for `scale = "federated"`, and label counts
where the site allows it. A site reads with the same code as a folder, so the same files give the
same numbers either way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from atoll.core.messages import Array
from atoll.data.federated import Federated
from atoll.data.files.agreement import Agreement, ClientFiles, DataDescription
from atoll.data.files.folder import data_files, open_file
from atoll.data.files.images import ImageFolder
from atoll.data.loading import preparation
from atoll.data.partition import natural
from atoll.data.preprocess import Moments, Scaling, fit, moments, to_float
from atoll.data.rows import prepare as split_and_fill
from atoll.data.settings import DataSettings
from atoll.data.source import Source, make_source
from atoll.errors import DataError


def open_site(place: Path) -> ClientFiles:
    """A site is one client: one table, one archive, or one folder of images."""
    if not place.exists():
        raise DataError(
            f"'{place}' does not exist; name the file or folder of this site's data", code="no-such-data-folder"
        )
    found = data_files(place)
    if len(found) > 1:
        raise DataError(
            f"'{place}' holds {len(found)} CSV or NPZ files; a site is one client: keep one file there",
            code="several-site-files",
        )
    if found:
        return open_file(found[0])
    images = ImageFolder.open(place)
    if not images.images:
        raise DataError(
            f"'{place}' holds no data: put one CSV or NPZ (x, y) file there, or images as class/name.png",
            code="no-data-files",
        )
    return images


def describe(place: Path, settings: DataSettings) -> DataDescription:
    """What the server learns of a site's data before a run. No row is part of it."""
    return open_site(place).describe(settings)


def read(place: Path, agreement: Agreement, settings: DataSettings, name: str) -> Source:
    """The site's rows in the agreed form."""
    files = open_site(place)
    if files.kind != agreement.kind:
        raise DataError(
            f"'{place}' holds {files.kind} data; the run started with {agreement.kind}: restore it", code="data-changed"
        )
    x, y, features = files.read(agreement, settings)
    return make_source(
        x,
        y,
        class_names=agreement.classes,
        feature_names=features,
        groups=np.zeros(len(y), np.int64),
        group_names=[name],
        what=f"'{place}'",
    )


@dataclass(frozen=True)
class Prepared:
    """A site's rows, split and with gaps filled, before the scaling that all sites share."""

    federated: Federated
    scale: str
    logarithm: bool

    def moments(self) -> Moments | None:
        """What leaves the site for `scale = "federated"`."""
        if self.scale != "federated":
            return None
        held = self.federated.client_rows
        return moments(to_float(np.take(held.x, held.rows_of(0, "train"), axis=0), self.logarithm))

    def scaled(self, mean: Array, deviation: Array) -> Federated:
        """The site's data as its networks receive it; the arrays are the scaling of all sites together, or empty."""
        held = self.federated.client_rows
        scaling = Scaling(self.logarithm, mean, deviation)
        if self.scale == "client":
            own = np.take(held.x, held.rows_of(0, "train"), axis=0)
            scaling = fit("client", self.logarithm, 1, lambda _: own)
        return Federated(self.federated.schema, replace(held, scaling=scaling))


def prepare(place: Path, agreement: Agreement, settings: DataSettings, name: str, seed: int) -> Prepared:
    """Read, split and fill the site's rows by the rules that apply to a folder of all clients."""
    source = read(place, agreement, settings, name)
    rules = preparation(settings, source)
    assert source.groups is not None
    held = split_and_fill(source, natural(source.groups), [name], replace(rules, scale="none"), seed)
    return Prepared(Federated(source.schema, held), rules.scale, rules.logarithm)
