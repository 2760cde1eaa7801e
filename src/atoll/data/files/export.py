"""Export of a data set of the catalogue as a folder of own data, one file per client."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from atoll.data import catalog
from atoll.data.loading import assign_rows
from atoll.data.naming import check_names
from atoll.data.partition import Indices
from atoll.data.settings import parse_partition
from atoll.data.source import Source
from atoll.errors import DataError
from atoll.rng import stream

LABEL = "label"


def export(
    name: str,
    out: Path,
    names: Sequence[str] | None,
    clients: int | None,
    rule: str | None,
    seed: int,
    data_dir: Path | None = None,
) -> list[tuple[Path, int]]:
    """Partition the training rows and write OUT/CLIENT.csv (tables) or .npz (images). Returns each file and its number
    of rows. No file is overwritten. `names` are the names of the clients, in order.
    """
    if names is not None:
        check_names(names)
        if clients not in (None, len(names)):
            raise DataError(
                f"--clients {clients}: {len(names)} names were given; give the same number, or leave one option out",
                code="client-names-mismatch",
            )
        clients = len(names)
    source = catalog.read(name, data_dir)
    kind = parse_partition(rule or ("iid" if source.groups is None else "natural"))
    assigned, own_names = assign_rows(source, kind, clients, stream(seed, "partition"))
    client_names = list(names) if names is not None else own_names
    suffix = "csv" if source.schema.kind == "table" else "npz"
    paths = [out / f"{client}.{suffix}" for client in client_names]
    for path in paths:
        if path.parent != out or path.name.startswith("."):
            raise DataError(
                f"client name '{path.stem}': cannot be a file name; choose another", code="invalid-client-name"
            )
        if path.exists():
            raise DataError(f"'{path}' exists and is not overwritten; choose another --out", code="file-exists")
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for place, path in enumerate(paths):
        rows = assigned.client(place)
        (_write_table if suffix == "csv" else _write_archive)(source, rows, path)
        written.append((path, len(rows)))
    return written


def _write_table(source: Source, rows: Indices, path: Path) -> None:
    schema = source.schema
    features = schema.features or tuple(f"x{number}" for number in range(schema.shape[0]))
    with path.open("x", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*features, LABEL])
        for row in rows:
            # The shortest digits that read back as the same number; a gap stays a gap.
            cells = ["" if np.isnan(value) else str(value) for value in source.x[row].astype(np.float32)]
            writer.writerow([*cells, schema.classes[source.y[row]]])


def _write_archive(source: Source, rows: Indices, path: Path) -> None:
    with path.open("xb") as file:
        np.savez(file, x=source.x[rows], y=source.y[rows], class_names=np.array(source.schema.classes))
