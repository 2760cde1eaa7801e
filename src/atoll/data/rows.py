"""Which client holds which rows, part by part: the arrays behind a federation, their preparation and storage."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from atoll.core.messages import PARTS, Array, Part
from atoll.data.image_files import appended
from atoll.data.partition import Indices, Partition
from atoll.data.preprocess import (
    Floats,
    Scaling,
    combined,
    fill_missing,
    fill_values,
    fit,
    scaling_of,
    statistics,
    to_float,
)
from atoll.data.private import PrivateRows
from atoll.data.source import Missing, Source
from atoll.data.split import Blocks, Shares, as_published, split
from atoll.errors import DataError
from atoll.preparation.value import Preparation, Scale, Statistics, parse

INDEX = "federated.json"
FORMAT = 2


def write(folder: Path, arrays: dict[str, Array], index: dict[str, Any]) -> None:
    """Write the arrays, then the index: a folder without an index is incomplete."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INDEX).unlink(missing_ok=True)
    for name, array in arrays.items():
        # Replaced, never overwritten: another process may have the old file mapped.
        aside = folder / f"{name}.npy.part"
        if not _linked(array, aside):
            with aside.open("wb") as file:
                np.save(file, array, allow_pickle=False)
        os.replace(aside, folder / f"{name}.npy")
    text = json.dumps({"format": FORMAT, "arrays": sorted(arrays), **index})
    aside = folder / f"{INDEX}.part"
    aside.write_text(text, encoding="utf-8")
    os.replace(aside, folder / INDEX)


def _linked(array: Array, path: Path) -> bool:
    """Hard-link the file that an array is mapped from, if the array is the whole of a `.npy` file on the same disk."""
    mapped: Any = array
    while isinstance(mapped, np.ndarray) and not isinstance(mapped, np.memmap):
        mapped = mapped.base
    if not isinstance(mapped, np.memmap) or not str(mapped.filename).endswith(".npy"):
        return False
    same = array.shape == mapped.shape and array.dtype == mapped.dtype and array.strides == mapped.strides
    if not same or os.path.getsize(str(mapped.filename)) != mapped.offset + array.nbytes:
        return False  # a part of the file, or the same bytes in another layout
    try:
        path.unlink(missing_ok=True)
        os.link(str(mapped.filename), path)
    except OSError:
        return False
    return True


def read(folder: Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays, mapped read-only from disk, and the index."""
    path = folder / INDEX
    try:
        index = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(
            f"'{folder}' holds no saved federation ({INDEX} is missing); save one there first",
            code="no-saved-federation",
        ) from None
    except ValueError as error:
        raise DataError(f"'{path}' is not readable ({error}); save the federation again", code="file-damaged") from None
    if not isinstance(index, dict) or index.get("format") != FORMAT:
        raise DataError(
            f"'{path}' is not of format {FORMAT}; save the federation again with this version",
            code="wrong-format-version",
        )
    arrays = {}
    for name in index["arrays"]:
        try:
            mapped = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise DataError(
                f"'{folder / name}.npy' is damaged ({error}); save the federation again", code="file-damaged"
            ) from None
        arrays[name] = np.asarray(mapped)
    return arrays, index


SLICE = 2000  # rows of the official test set per benchmark slice
EVERYBODY = "everybody"


@dataclass(frozen=True)
class PreparationRules:
    """What is done with the rows after they are assigned to clients."""

    split: Shares = (0.6, 0.2, 0.2)
    blocks: Blocks = "random"
    scale: Scale = "none"
    logarithm: bool = False
    missing: Missing = "refuse"


@dataclass(frozen=True)
class ClientRows:
    """The rows of all clients: holder `i` has `rows[bounds[i, p]:bounds[i, p + 1]]` in part `p`.

    The holders are the clients, in the order of `names`, then the benchmark slices and the clients that are held out,
    which have a test part only. `preparation` is what a global model knows of raw rows; `fill` has each holder's own
    values for gaps, or no rows. `rules` are those by which it was made; None: they are not known.
    """

    x: Array
    y: Indices
    rows: Indices
    bounds: Indices
    scaling: Scaling
    names: list[str]
    benchmark: list[str]
    held_out: list[str]
    preparation: Preparation
    fill: Floats
    rules: PreparationRules | None = None

    def statistics_of(self, holder: int) -> Statistics:
        """What one client knows of its own rows."""
        fill = self.fill[holder] if len(self.fill) else None
        row = holder if len(self.scaling.mean) > 1 else 0
        return statistics(fill, self.scaling.mean[row : row + 1], self.scaling.deviation[row : row + 1])

    def rows_of(self, holder: int, part: Part) -> Indices:
        number = PARTS.index(part)
        return self.rows[self.bounds[holder, number] : self.bounds[holder, number + 1]]

    def gather(self, holder: int, rows: Indices) -> Floats:
        """These rows as the holder's network sees them, in a fresh array."""
        return self.scaling.apply(np.take(self.x, rows, axis=0), holder)


def prepare(
    source: Source,
    partition: Partition,
    names: Sequence[str],
    rules: PreparationRules,
    seed: int,
    held_out: Mapping[str, Indices] | None = None,
    private: PrivateRows | None = None,
) -> ClientRows:
    """Split every client's rows, fill gaps, append the official test set as slices and fit the scaling.

    All rows of the clients that are `held_out` are test rows, and nothing is learned from them: their gaps, like those
    of the official test set, are filled by the values of the others. With `private` the moments of a federated scaling
    have noise.
    """
    names, outside = list(names), held_out or {}
    if rules.blocks == "official":
        if source.parts is None:
            raise DataError(
                "data.blocks = 'official': this data has no published parts; use random or contiguous",
                code="no-published-parts",
            )
        rows, bounds = as_published(partition, source.parts, names)
    else:
        rows, bounds = split(partition, source.y, names, rules.split, seed, rules.blocks)
    x, y = source.x, source.y
    benchmark: list[str] = []
    if source.test is not None:
        slices = _slices(len(source.test[1]))
        benchmark = [f"benchmark-{number:02d}" for number in range(len(slices))]
        bounds = np.concatenate([bounds, len(rows) + slices])
        rows = np.concatenate([rows, len(y) + np.arange(len(source.test[1]))])
        x, y = appended(x, source.test[0]), np.concatenate([y, source.test[1]])
    for own in outside.values():
        start = len(rows)
        bounds = np.concatenate([bounds, [[start, start, start, start + len(own)]]])
        rows = np.concatenate([rows, own])
    fill = fill_values(x, rows, bounds[: len(names)], rules.missing)
    sizes = bounds[: len(names), 1] - bounds[: len(names), 0]
    shared_fill = pooled_fill(fill, sizes)
    if shared_fill is not None:
        fill = np.concatenate([fill, np.repeat(shared_fill[None], len(bounds) - len(names), axis=0)])
    x = fill_missing(x, rows, bounds, [*names, *benchmark, *outside], fill, source.schema.features)

    def scaled_by(holder: int) -> Array:
        # Other holders have no training rows: with scale "client" they are scaled by their test rows.
        part = 2 if holder >= len(names) else 0
        return np.take(x, rows[bounds[holder, part] : bounds[holder, part + 1]], axis=0)

    holders = len(bounds) if rules.scale == "client" else len(names)
    if private is not None and rules.scale == "federated":
        each = (
            private.simulated(
                to_float(scaled_by(place), rules.logarithm), source.preparation, rules.logarithm, seed, name
            )
            for place, name in enumerate(names)
        )
        scaling = scaling_of([combined(each)], rules.logarithm)
    else:
        scaling = fit(rules.scale, rules.logarithm, holders, scaled_by)
    preparation = completed(source.preparation, rules, common_statistics(rules, shared_fill, scaling))
    return ClientRows(x, y, rows, bounds, scaling, names, benchmark, list(outside), preparation, fill, rules)


def pooled_fill(fill: Floats, sizes: Indices) -> Floats | None:
    """The clients' values for gaps, averaged by their training rows; None where gaps are refused."""
    return np.average(fill, axis=0, weights=np.maximum(sizes, 1)).astype(np.float32) if len(fill) else None


def common_statistics(rules: PreparationRules, fill: Floats | None, scaling: Scaling) -> Statistics | None:
    """The statistics that all clients share, and no others: None where each scales by its own.

    Means and medians for gaps leave a client only where the scaling is federated, as the moments do. Elsewhere a
    global model refuses gaps.
    """
    if rules.scale == "client":
        return None
    shared = rules.scale == "federated" or rules.missing == "zero"
    return statistics(fill if shared else None, scaling.mean, scaling.deviation)


def completed(preparation: Preparation, rules: PreparationRules, known: Statistics | None) -> Preparation:
    """The preparation of raw rows with the filling and scaling that these rules and statistics mean."""
    if known is not None and preparation.kind == "image":  # missing pixels of a new image are refused
        known = known.model_copy(update={"fill": None})
    found = {"logarithm": rules.logarithm, "scale": rules.scale, "statistics": known and known.model_dump()}
    return parse({**preparation.plain(), **found}, "data")


def centralise(held: ClientRows) -> ClientRows:
    """The same rows in the same parts and on the same scale, all held by one client."""
    if len(held.scaling.mean) > 1:
        held = _scaled(held)
    clients = len(held.names)
    pieces = [held.rows_of(client, part) for part in PARTS for client in range(clients)]
    first = int(held.bounds[clients - 1, 3])
    own = np.diff(held.bounds[:clients], axis=1).sum(axis=0)
    central = np.concatenate([[0], np.cumsum(own)])[None].astype(np.int64)
    return replace(
        held,
        rows=np.concatenate([*pieces, held.rows[first:]]),
        bounds=np.concatenate([central, held.bounds[clients:]]),
        names=[EVERYBODY],
        fill=held.fill[:0],
    )


def _scaled(held: ClientRows) -> ClientRows:
    """Apply each holder's own scaling to its rows, since centralised data has one scaling for all."""
    x = np.empty(held.x.shape, dtype=np.float32)
    for holder in range(len(held.bounds)):
        rows = held.rows[held.bounds[holder, 0] : held.bounds[holder, 3]]
        x[rows] = held.gather(holder, rows)
    nothing = np.zeros((0, 0), dtype=np.float32)
    return replace(held, x=x, scaling=Scaling(False, nothing, nothing))


def _slices(rows: int) -> Indices:
    """Bounds (slices x 4) of the official test set, all of it part "test"."""
    starts = np.arange(0, rows, SLICE)
    ends = np.minimum(starts + SLICE, rows)
    if len(starts) > 1 and ends[-1] - starts[-1] == 1:
        # Batch norm needs more than one row: the slice before gives up a hundred.
        starts[-1] -= 100
        ends[-2] -= 100
    return np.stack([starts, starts, starts, ends], axis=1)
