"""A look at a site's data before it joins: can it be read, and what is in it."""

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
    """What `atoll site join` tells about the data, to the site itself only."""

    rows: int
    form: str
    columns: tuple[str, ...]
    classes: tuple[str, ...]
    per_class: tuple[int, ...]
    note: str  # what an experiment must set for this data, or ""


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
        # Gaps and words are no fault of the data: an experiment can allow for them.
        allowing = settings.model_copy(update={"missing": "zero", "categories": "code"})
        try:
            return _read(place, allowing, name, f"experiments must allow for this: {problem}")
        except DataError:
            raise problem from None


def _read(place: Path, settings: DataSettings, name: str, note: str) -> DataSummary:
    told = describe(place, settings)
    if len(told["labels"]) == 1 and not told.get("classes"):
        # One class is enough for a site: others have the rest. The reader wants two, so it gets one without rows.
        told["labels"] = [*told["labels"], told["labels"][0] + (1 if told.get("numbered") else "-")]
    form, _ = agree({name: told})
    source = read(place, form, settings, name)
    counts = np.bincount(source.y, minlength=source.schema.outputs).tolist()
    held = [(word, count) for word, count in zip(source.schema.classes, counts, strict=True) if count]
    shape = " x ".join(str(size) for size in source.schema.shape)
    words = f"{shape} columns" if source.schema.kind == "table" else f"images of {shape}"
    classes, per_class = (word for word, _ in held), (count for _, count in held)
    return DataSummary(len(source.y), words, source.schema.features, tuple(classes), tuple(per_class), note)
