"""From the `[data]` table to a federation: read, limit the rows, partition, prepare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from atoll.data import catalog, partition
from atoll.data.federated import Federated
from atoll.data.files.folder import Examination, agreement_of, judge, open_folder, source_of
from atoll.data.files.suggestions import refuse_problems
from atoll.data.image_files import decode_images
from atoll.data.naming import numbered
from atoll.data.partition import Indices, Partition
from atoll.data.private import SPLITS, PrivateRows
from atoll.data.rows import PreparationRules, prepare
from atoll.data.settings import DataSettings, PartitionRule, parse_partition
from atoll.data.source import Source
from atoll.errors import DataError, nearest
from atoll.rng import Generator, stream

CLIENTS = 10  # if a partition needs a number of clients and none is given


def load(settings: DataSettings, seed: int, data_dir: str | Path | None = None) -> Federated:
    """The federation the settings describe. The same settings, seed and files give the same bits."""
    return settle(settings, seed, data_dir)[0]


def settle(
    settings: DataSettings, seed: int, data_dir: str | Path | None = None, private: PrivateRows | None = None
) -> tuple[Federated, DataSettings]:
    """The federation, and the settings with every default filled in."""
    if settings.name is None:
        return settle_files(judge(open_folder(settings), settings), seed, private)
    source = catalog.read(settings.name, data_dir, settings.size, settings.attributes)
    return settle_source(without(source, settings.exclude or ()), settings, seed, private)


def settle_files(found: Examination, seed: int, private: PrivateRows | None = None) -> tuple[Federated, DataSettings]:
    """The same for own data that has been examined."""
    refuse_problems(found)
    agreement = agreement_of(found)
    federated, decided = settle_source(source_of(found, agreement), found.settings, seed, private)
    if not federated.held_out or decided.partition != "natural":
        return federated, decided
    # Who is held out is known only now. The others decide the words, codes and first dates of columns.
    by_others = agreement_of(found, federated.held_out)
    if by_others == agreement:
        return federated, decided
    return settle_source(source_of(found, by_others, federated.held_out), found.settings, seed, private)


def settle_source(
    source: Source, settings: DataSettings, seed: int, private: PrivateRows | None = None
) -> tuple[Federated, DataSettings]:
    """The same for data that has been read."""
    found = assign(source, settings, seed)
    rules = preparation_rules(settings, found.source, private)
    size = None if source.images is None else source.images.size
    ready, assigned = decode_images(found.source, found.partition)
    places = {name: place for place, name in enumerate(found.names)}
    held_out = {name: np.sort(assigned.client(places[name])) for name in found.held_out}
    names = [name for name in found.names if name not in held_out]
    inside = _pieces(assigned, [places[name] for name in names]) if held_out else assigned
    client_rows = prepare(ready, inside, names, rules, seed, held_out, private)
    decided = {
        "folder": None if settings.folder is None else str(Path(settings.folder).resolve()),
        "partition": found.rule.text(),
        "clients": len(found.names),
        "holdout_clients": tuple(found.held_out) or None,
        "test": None if settings.test is None else str(Path(settings.test).resolve()),
        "size": size,
        **asdict(rules),
    }
    return Federated(client_rows, settings.share_labels), settings.model_copy(update=decided)


class AssignedRows(NamedTuple):
    """Which client has which rows, before they are prepared; those `held_out` are among `names`."""

    source: Source
    rule: PartitionRule
    partition: Partition
    names: list[str]
    held_out: list[str]


def assign(source: Source, settings: DataSettings, seed: int) -> AssignedRows:
    """Limit the rows, assign them to clients, and choose the clients that are held out."""
    if settings.only is not None:
        source = only(source, settings.only)
    if settings.rows is not None:
        source = _cap_training(source, settings.rows, stream(seed, "rows"))
    if settings.test_rows is not None:
        source = _cap_test(source, settings.test_rows, stream(seed, "test_rows"))
    rule = parse_partition(settings.partition or ("iid" if source.groups is None else "natural"))
    assigned, names = assign_rows(source, rule, settings.clients, stream(seed, "partition"))
    found = AssignedRows(source, rule, assigned, names, _held_out(settings, names, seed))
    _check_trained(found)
    return found


def preparation_rules(settings: DataSettings, source: Source, private: PrivateRows | None = None) -> PreparationRules:
    """The settings of the preparation, with the data set's defaults for those left out. Under `[privacy]` none is a
    split by class."""
    defaults = source.defaults
    usual_blocks = defaults.blocks if private is None else SPLITS.get(defaults.blocks, defaults.blocks)
    usual_split = (0.6, 0.2, 0.2) if source.test is None else (0.8, 0.2, 0.0)
    usual_scale = defaults.scale or ("federated" if source.schema.kind == "table" else "none")
    return PreparationRules(
        split=settings.split or usual_split,
        blocks=settings.blocks or usual_blocks,
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
    chosen = np.sort(rng.permutation(len(names))[:wanted]).tolist()
    return _pieces(assigned, chosen), [names[client] for client in chosen]


def _held_out(settings: DataSettings, names: Sequence[str], seed: int) -> list[str]:
    """The clients that only test the result, in the order of all clients."""
    wanted = settings.holdout_clients
    if wanted is None:
        return []
    if isinstance(wanted, float):
        count = max(1, round(wanted * len(names)))
        chosen = set(stream(seed, "holdout").permutation(len(names))[:count].tolist())
        found = [name for place, name in enumerate(names) if place in chosen]
    else:
        known = set(names)
        for name in wanted:
            if name not in known:
                raise DataError(
                    f"data.holdout_clients: there is no client '{name}'; {nearest(name, names)}", code="unknown-client"
                )
        chosen_names = set(wanted)
        found = [name for name in names if name in chosen_names]
    if len(found) >= len(names):
        raise DataError(
            f"data.holdout_clients holds out {len(found)} of {len(names)} clients; leave some to learn from",
            code="no-client-named",
        )
    return found


def _check_trained(found: AssignedRows) -> None:
    """Refuse a class that only clients have that are held out: no network could learn it."""
    if not found.held_out:
        return
    labels = {name: np.unique(found.source.y[found.partition.client(at)]) for at, name in enumerate(found.names)}
    outside = set(found.held_out)
    trained = np.concatenate([own for name, own in labels.items() if name not in outside])
    for name in found.held_out:
        for other in np.setdiff1d(labels[name], trained).tolist():
            raise DataError(
                f"data.holdout_clients: '{name}' has the class '{found.source.schema.classes[other]}', and no client "
                "that trains has it; hold out others, or leave this one out with data.exclude",
                code="untrained-class",
            )


def _pieces(assigned: Partition, places: Sequence[int]) -> Partition:
    pieces = [assigned.client(place) for place in places]
    offsets = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    return Partition(np.concatenate(pieces), offsets)


def without(source: Source, names: Sequence[str]) -> Source:
    """The rows of all natural clients but these."""
    if not names:
        return source
    _check_known(source, names, "data.exclude")
    left_out = set(names)
    left = [name for name in source.group_names if name not in left_out]
    if not left:
        raise DataError("data.exclude leaves out every client; name fewer", code="no-client-named")
    return only(source, left)


def _check_known(source: Source, names: Sequence[str], setting: str) -> None:
    if source.groups is None:
        raise DataError(f"{setting}: this data set has no natural clients; leave it out", code="no-natural-clients")
    known = set(source.group_names)
    for name in names:
        if name not in known:
            raise DataError(
                f"{setting}: there is no client '{name}'; {nearest(name, source.group_names)}", code="unknown-client"
            )


def only(source: Source, names: Sequence[str]) -> Source:
    """The rows of these natural clients, in the order of the data."""
    _check_known(source, names, "data.only")
    if source.groups is None or not names:
        raise DataError("data.only names no client; name some, or leave it out for all", code="no-client-named")
    wanted = set(names)
    places = [place for place, name in enumerate(source.group_names) if name in wanted]
    new_place = np.full(len(source.group_names), -1)
    new_place[places] = np.arange(len(places))
    kept = np.flatnonzero(np.isin(source.groups, places))
    chosen = tuple(source.group_names[place] for place in places)
    groups = new_place[source.groups[kept]]
    parts = None if source.parts is None else source.parts[kept]
    return replace(source, x=source.x[kept], y=source.y[kept], groups=groups, group_names=chosen, parts=parts)


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
