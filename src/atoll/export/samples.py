"""Made-up raw rows within the ranges of a preparation, on which an export is compared with its network."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from atoll.core.messages import Array
from atoll.preparation.value import ImageForm, Preparation, RawColumn
from atoll.rng import Generator, stream

DAYS = 3650  # of made-up dates after the first one


def sample_rows(preparation: Preparation, count: int = 64, seed: int = 0) -> Any:
    """A list of dicts, or an array of images; numbers lie within two deviations of the mean where these are known."""
    rng = stream(seed, "export", "samples")
    if preparation.image is not None:
        return _images(preparation.image, count, rng)
    rows = count if preparation.window is None else (count - 1) * preparation.window.stride + preparation.window.steps
    place, columns = 0, {}
    for column in preparation.columns:
        columns[column.name] = _cells(column, preparation, place, rows, rng)
        place += len(column.inputs)
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _cells(column: RawColumn, preparation: Preparation, place: int, rows: int, rng: Generator) -> list[Any]:
    if column.kind == "category":
        return [column.words[code] for code in rng.integers(0, len(column.words), rows).tolist()]
    if column.kind == "date":
        origin = datetime.fromisoformat(column.origin)
        hours = rng.integers(0, 24 * DAYS, rows).tolist()
        return [(origin + timedelta(hours=hour)).isoformat() for hour in hours]
    values = rng.uniform(-2, 2, rows)
    known = preparation.statistics
    if known is not None and known.mean:
        values = known.mean[place] + known.deviation[place] * values
    if preparation.logarithm:
        values = np.copysign(np.expm1(np.minimum(np.abs(values), math.log(1e30))), values)
    cells: list[Any] = values.tolist()
    if known is not None and known.fill is not None:
        for row in rng.integers(0, rows, max(1, rows // 20)).tolist():
            cells[row] = None
    return cells


def _images(form: ImageForm, count: int, rng: Generator) -> Array:
    shape = (count, form.channels, form.height, form.width)
    if form.dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(0, int(form.largest) + 1, shape).astype(form.dtype)
