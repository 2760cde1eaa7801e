"""From the `[data]` table to a federation: read, limit the rows, partition, prepare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from atoll.data import catalog, partition
from atoll.data.federated import Federated
from atoll.data.files.folder import read_folder
from atoll.data.image_files import decode_images
from atoll.data.naming import numbered
from atoll.data.partition import Indices, Partition
from atoll.data.rows import Preparation, prepare
from atoll.data.settings import DataSettings, PartitionRule, parse_partition
from atoll.data.source import Source
from atoll.errors import DataError, nearest
from atoll.rng import Generator, stream

CLIENTS = 10  # if a partition needs a number of clients and none is given


def load(settings: DataSettings, seed: int, data_dir: str | Path | None = None) -> Federated:
    """The federation the settings describe. The same settings, seed and files give the same bits."""
    return settle(settings, seed, data_dir)[0]


def settle(settings: DataSettings, seed: int, data_dir: str | Path | None = None) -> tuple[Federated, DataSettings]:
    """The federation, and the settings with every default filled in."""
    source = _read(settings, data_dir)
    if settings.only is not None:
        source = only(source, settings.only)
    if settings.rows is not None:
        source = _cap_training(source, settings.rows, stream(seed, "rows"))
    if settings.test_rows is not None:
        source = _cap_test(source, settings.test_rows, stream(seed, "test_rows"))
    rule = parse_partition(settings.partition or ("iid" if source.groups is None else "natural"))
    assigned, names = assign_rows(source, rule, settings.clients, stream(seed, "partition"))
    prepared = preparation(settings, source)
    size = None if source.images is None else source.images.size
    source, assigned = decode_images(source, assigned)
    client_rows = prepare(source, assigned, names, prepared, seed)
    decided = {
        "folder": None if settings.folder is None else str(Path(settings.folder).resolve()),
        "partition": rule.text(),
        "clients": len(names),
        "size": size,
        **asdict(prepared),
    }
    return Federated(source.schema, client_rows, settings.share_labels), settings.model_copy(update=decided)


def preparation(settings: DataSettings, source: Source) -> Preparation:
    """The settings of the preparation, with the data set's defaults for those left out."""
    defaults = source.defaults
    usual_split = (0.6, 0.2, 0.2) if source.test is None else (0.8, 0.2, 0.0)
    usual_scale = defaults.scale or ("federated" if source.schema.kind == "table" else "none")
    return Preparation(
        split=settings.split or usual_split,
        blocks=settings.blocks or defaults.blocks,
        scale=settings.scale or usual_scale,
        logarithm=defaults.logarithm if settings.logarithm is None else settings.logarithm,
        missing=settings.missing or defaults.missing,
    )


def assign_rows(source: Source, rule: PartitionRule, wanted: int | None, rng: Generator) -> tuple[Partition, list[str]]:
    """The partition, and the names of the clients."""
    if rule.kind == "natural":
        return _natural(source, wanted, rng)
    clients = CLIENTS if wanted is None else wanted
    labels, total = source.y, source.schema.outputs
    match rule.kind:
        case "iid":
            assigned = partition.iid(labels, clients, rng)
        case "classes":
            assigned = partition.classes(labels, clients, int(rule.number), total, rng)
        case "shards":
            assigned = partition.shards(labels, clients, int(rule.number), rng)
        case "dirichlet":
            assigned = partition.dirichlet(labels, clients, rule.number, total, rng)
        case _:
            assigned = partition.quantity(labels, clients, rule.number, rng)
    return assigned, numbered(clients)


def _natural(source: Source, wanted: int | None, rng: Generator) -> tuple[Partition, list[str]]:
    if source.groups is None:
        raise DataError(
            "partition 'natural': this data set has no natural clients; write iid, dirichlet:0.5, classes:K, "
            "shards:K or quantity:0.5",
            code="no-natural-clients",
        )
    assigned = partition.natural(source.groups)
    names = list(source.group_names)
    if wanted is None or wanted == len(names):
        return assigned, names
    if wanted > len(names):
        raise DataError(
            f"data.clients = {wanted}: the data has {len(names)} natural clients; use at most {len(names)}",
            code="too-many-clients",
        )
    chosen = np.sort(rng.permutation(len(names))[:wanted])
    pieces = [assigned.client(int(client)) for client in chosen]
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    return Partition(np.concatenate(pieces), offsets), [names[int(client)] for client in chosen]


def only(source: Source, names: Sequence[str]) -> Source:
    """The rows of these natural clients, in the order of the data."""
    if source.groups is None:
        raise DataError("data.only: this data set has no natural clients; leave it out", code="no-natural-clients")
    for name in names:
        if name not in source.group_names:
            raise DataError(
                f"data.only: there is no client '{name}'; {nearest(name, source.group_names)}", code="unknown-client"
            )
    if not names:
        raise DataError("data.only is empty; name at least one client, or leave it out for all", code="no-client-named")
    places = [place for place, name in enumerate(source.group_names) if name in names]
    new_place = np.full(len(source.group_names), -1)
    new_place[places] = np.arange(len(places))
    kept = np.flatnonzero(np.isin(source.groups, places))
    chosen = tuple(source.group_names[place] for place in places)
    groups = new_place[source.groups[kept]]
    parts = None if source.parts is None else source.parts[kept]
    return replace(source, x=source.x[kept], y=source.y[kept], groups=groups, group_names=chosen, parts=parts)


def _read(settings: DataSettings, data_dir: str | Path | None) -> Source:
    if settings.name is not None:
        return catalog.read(settings.name, data_dir, settings.size, settings.attributes)
    return read_folder(settings)


def _cap_training(source: Source, rows: int, rng: Generator) -> Source:
    if rows > len(source.y):
        raise DataError(
            f"data.rows = {rows}: there are only {len(source.y)} training rows; lower it or leave it out",
            code="rows-exceed-data",
        )
    kept = balanced(source.y, rows, rng)
    groups = None if source.groups is None else source.groups[kept]
    parts = None if source.parts is None else source.parts[kept]
    return replace(source, x=source.x[kept], y=source.y[kept], groups=groups, parts=parts)


def _cap_test(source: Source, rows: int, rng: Generator) -> Source:
    if source.test is None:
        raise DataError(
            f"data.test_rows = {rows}: this data set has no official test set; leave it out", code="no-test-set"
        )
    x, y = source.test
    if rows > len(y):
        raise DataError(
            f"data.test_rows = {rows}: the official test set has {len(y)} rows; lower it or leave it out",
            code="rows-exceed-data",
        )
    kept = balanced(y, rows, rng)
    return replace(source, test=(x[kept], y[kept]))


def balanced(labels: Indices, rows: int, rng: Generator) -> Indices:
    """`rows` random row numbers, ascending, with equally many of each class as long as its rows last."""
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    ordered = labels[by_class]
    rank = np.arange(len(labels)) - np.searchsorted(ordered, ordered)  # first, second, ... of its class
    # The first row of every class comes before the second row of any; within a rank the order is random.
    turn = np.lexsort((rng.permutation(len(labels)), rank))
    return np.sort(by_class[turn[:rows]])
