"""Missing values (NaN): refused, or filled by a declared rule from the client's own training rows."""

from __future__ import annotations

import numpy as np

from atoll.data.partition import Indices
from atoll.data.source import Missing
from atoll.errors import DataError
from atoll.messages import Array


def fill_missing(
    x: Array, rows: Indices, bounds: Indices, names: list[str], rule: Missing, features: tuple[str, ...]
) -> Array:
    """`x` without NaN, `x` itself if there were none.

    `mean` and `median` are the client's own, over its training rows; a feature without any value there becomes 0.
    """
    if x.dtype.kind != "f":
        return x
    flat_x: Array = x.reshape(len(x), -1)
    gaps: Array = np.isnan(flat_x)
    holes = np.any(gaps, axis=1)
    if not holes.any():
        return x
    if rule == "refuse":
        raise DataError(_refusal(gaps, rows, bounds, names, features), code="missing-value")
    filled = x.copy()
    if rule == "zero":
        return np.nan_to_num(filled, copy=False, nan=0.0)
    flat = filled.reshape(len(x), -1)
    for client in range(len(bounds)):
        own = rows[bounds[client, 0] : bounds[client, 3]]
        broken = own[holes[own]]
        if len(broken):
            train = flat[rows[bounds[client, 0] : bounds[client, 1]]]
            flat[broken] = np.where(gaps[broken], _centre(train, rule), flat[broken])
    return filled


def _centre(train: Array, rule: Missing) -> Array:
    """Mean or median of every feature over the values that are there; 0 where there are none."""
    known = ~np.isnan(train)
    centre = np.zeros(train.shape[1], dtype=train.dtype)
    some = known.any(axis=0)
    centre[some] = (np.nanmean if rule == "mean" else np.nanmedian)(train[:, some], axis=0)
    return centre


def _refusal(gaps: Array, rows: Indices, bounds: Indices, names: list[str], features: tuple[str, ...]) -> str:
    held = rows[np.isin(rows, np.flatnonzero(gaps.any(axis=1)))]
    row = int(held[0]) if len(held) else int(np.flatnonzero(gaps.any(axis=1))[0])
    column = int(np.flatnonzero(gaps[row])[0])
    where = f"'{features[column]}'" if column < len(features) else f"number {column}"
    place = np.flatnonzero(rows == row)
    client = int(np.searchsorted(bounds[:, 3], place[0], side="right")) if len(place) else -1
    who = f"client '{names[client]}'" if client >= 0 else "the test rows"
    return (
        f"{who} has missing values, the first in feature {where}; "
        "set data.missing to 'mean', 'median' or 'zero' to fill them, or remove these rows"
    )
