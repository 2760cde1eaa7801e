"""A check of a site's data before it joins: whether it can be read, and what it holds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from atoll.data.files.agreement import agree
from atoll.data.files.site import describe, read
from atoll.data.settings import SITES, DataSettings
from atoll.errors import DataError


@dataclass(frozen=True)
class DataSummary:
    """What `atoll site join` shows of the data, to the site itself only."""

    rows: int
    form: str
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    per_class: tuple[int, ...]
    note: str  # what an experiment must allow for, or ""


def look(place: Path, label: str, name: str) -> DataSummary:
    """Read the data as an experiment would. A `DataError` says why it cannot be used."""
    if not place.exists():
        raise DataError(
            f"--data {place}: no such folder; name the one with this site's data", code="no-such-data-folder"
        )
    if place.is_dir() and all(path.name.startswith(".") for path in place.iterdir()):
        raise DataError(
            f"--data {place}: the folder is empty; put this site's CSV or NPZ file there", code="data-folder-empty"
        )
    settings = DataSettings.model_validate({"name": SITES, "label": label})
    try:
        return _read(place, settings, name, "")
    except DataError as problem:
        # Gaps and text are not errors: an experiment can allow for them.
        allowing = settings.model_copy(update={"missing": "zero", "categories": "code"})
        try:
            return _read(place, allowing, name, f"experiments must allow for this: {problem}")
        except DataError:
            raise problem from None


def _read(place: Path, settings: DataSettings, name: str, note: str) -> DataSummary:
    description = describe(place, settings)
    if len(description.labels) == 1 and not description.classes:
        # One class is enough for a site, since others have the rest. An agreement needs two: add one without rows.
        more = description.labels[0] + (1 if description.numbered else "-")  # type: ignore[operator]
        description = description.model_copy(update={"labels": [description.labels[0], more]})
    source = read(place, agree({name: description}), settings, name)
    counts = np.bincount(source.y, minlength=source.schema.outputs).tolist()
    held = [(word, count) for word, count in zip(source.schema.classes, counts, strict=True) if count]
    shape = " x ".join(str(size) for size in source.schema.shape)
    form = f"{shape} columns" if source.schema.kind == "table" else f"images of {shape}"
    classes, per_class = (word for word, _ in held), (count for _, count in held)
    return DataSummary(len(source.y), form, source.schema.features, tuple(classes), tuple(per_class), note)
