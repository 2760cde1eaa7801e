"""The data of all clients: one array of rows, and an index of the rows that each client holds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from atoll.core.messages import Array, ClientInfo, Part, Schema
from atoll.data import rows as storage
from atoll.data.naming import group_by_id
from atoll.data.partition import Indices, natural
from atoll.data.preprocess import Floats, Scaling
from atoll.data.rows import ClientRows, PreparationRules, centralise, prepare
from atoll.data.settings import checked_settings
from atoll.data.source import Missing, make_source
from atoll.data.split import Blocks, Shares
from atoll.errors import DataError
from atoll.preparation.value import Preparation, Scale, parse

Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ClientData:
    """One client's rows. They are gathered when `part` is called, and not cached."""

    name: str
    schema: Schema
    _held: ClientRows
    _holder: int

    def part(self, part: Part) -> tuple[Floats, Labels]:
        """Fresh arrays: `x` float32, C-contiguous and scaled, `y` class numbers. A part may be empty."""
        rows = self._held.rows_of(self._holder, part)
        return self._held.gather(self._holder, rows), np.take(self._held.y, rows)

    @property
    def sizes(self) -> dict[Part, int]:
        """Rows of every part."""
        first, second, third, end = self._held.bounds[self._holder].tolist()
        return {"train": second - first, "validation": third - second, "test": end - third}


class Federated:
    """A federation's data. All clients share the arrays; a look-up takes the same time for any number of clients.

    schema       the shape of every client's rows
    names        the clients, in order; stable for the same data and partition
    benchmark    pseudo-clients that hold slices of the official test set (part "test" only); never among `names`
    held_out     clients whose rows all serve to test the result (part "test" only); never among `names`
    client_rows  the arrays and the index
    """

    def __init__(self, client_rows: ClientRows, share_labels: bool = False) -> None:
        """Usually called by `from_arrays` or `atoll.data.load`."""
        self.schema = client_rows.preparation.row_schema
        self.client_rows = client_rows
        self.names = client_rows.names
        self.benchmark = client_rows.benchmark
        self.held_out = client_rows.held_out
        self.share_labels = share_labels
        self._holder = {name: index for index, name in enumerate([*self.names, *self.benchmark, *self.held_out])}
        if len(self._holder) != len(client_rows.bounds):
            raise DataError(
                "two clients have the same name; every client needs a name of its own", code="duplicate-client-name"
            )

    @classmethod
    def from_arrays(
        cls,
        x: Array,
        y: Array,
        clients: Sequence[int] | Sequence[str] | Array,
        *,
        class_names: Sequence[str] | None = None,
        feature_names: Sequence[str] | None = None,
        test: tuple[Array, Array] | None = None,
        split: Shares = (0.6, 0.2, 0.2),
        blocks: Blocks = "random",
        scale: Scale = "none",
        logarithm: bool = False,
        missing: Missing = "refuse",
        share_labels: bool = False,
        seed: int = 0,
    ) -> Federated:
        """A federation from arrays: row `i` belongs to client `clients[i]` (a word, or a number `n`: "client-n").

        `x` is (rows, features) or images, channels first or last (`atoll.data.source.channels_first` has the rule);
        `y` holds whole numbers or words. `test` is an official test set (x, y) that belongs to no client. The other
        arguments are those of `[data]`. `x` is not copied if its layout fits: do not change it afterwards.
        """
        groups, names = group_by_id(_plain(clients), "client")
        source = make_source(
            np.asarray(x),
            _plain(y),
            class_names=class_names,
            feature_names=feature_names,
            groups=groups,
            group_names=names,
            test=None if test is None else (np.asarray(test[0]), _plain(test[1])),
        )
        if len(groups) != len(source.y):
            raise DataError(
                f"{len(groups)} client ids for {len(source.y)} rows; give every row the id of its client",
                code="client-ids-mismatch",
            )
        rules = PreparationRules(split, blocks, scale, logarithm, missing)
        return cls(prepare(source, natural(groups), names, rules, seed), share_labels)

    @classmethod
    def from_folder(cls, folder: str | Path, *, seed: int = 1, **settings: Any) -> Federated:
        """A federation from a folder of own data: one file per client. `settings` are those of `[data]`:
        `from_folder("hospitals", missing="mean", label="outcome")`."""
        from atoll.data.loading import load

        return load(checked_settings({"folder": str(folder), **settings}), seed)

    @classmethod
    def from_dataframe(cls, frame: Any, client: str, *, test: Any = None, seed: int = 1, **settings: Any) -> Federated:
        """A federation from a DataFrame (pandas, polars, or a dict of columns) whose column `client` names the client
        of each row. `test` has rows that no client holds: another DataFrame, or a file or folder. `settings` are those
        of `[data]`: `from_dataframe(frame, client="hospital", label="outcome")`."""
        from atoll.data.files.folder import judge, open_frame
        from atoll.data.loading import settle_files

        if isinstance(test, (str, Path)):
            settings, test = {**settings, "test": str(test)}, None
        found = checked_settings({"folder": "DataFrame", "client_column": client, **settings})
        return settle_files(judge(open_frame(frame, found, test), found), seed)[0]

    def holders(self) -> tuple[list[str], list[str], list[str]]:
        """The names of clients, of benchmark slices and of clients that are held out."""
        return self.names, self.benchmark, self.held_out

    @property
    def rows(self) -> int:
        """The number of rows that the clients hold, without the official test set."""
        return int(self.client_rows.bounds[len(self.names) - 1, 3])

    def client(self, name: str) -> ClientData:
        """The data of a client or of a benchmark slice."""
        try:
            return ClientData(name, self.schema, self.client_rows, self._holder[name])
        except KeyError:
            known = f"'{self.names[0]}' to '{self.names[-1]}'"
            raise DataError(
                f"there is no client '{name}'; the {len(self.names)} clients are named {known}", code="unknown-client"
            ) from None

    def sizes(self, name: str) -> dict[Part, int]:
        """Rows of every part."""
        return self.client(name).sizes

    def labels(self, name: str) -> tuple[int, ...]:
        """Training rows per class."""
        held = np.take(self.client_rows.y, self.client_rows.rows_of(self.client(name)._holder, "train"))
        return tuple(np.bincount(held, minlength=self.schema.outputs).tolist())

    @property
    def preparation(self) -> Preparation:
        """How raw rows become the rows of a network that serves all clients."""
        return self.client_rows.preparation

    def preparation_of(self, name: str) -> Preparation:
        """The same with the statistics of one client, for a network of its own."""
        if self.preparation.scale != "client":
            return self.preparation
        return self.preparation.with_statistics(self.client_rows.statistics_of(self.client(name)._holder))

    def info(self, name: str) -> ClientInfo:
        """What the server may know of a client: its labels only if the data settings share them."""
        return ClientInfo(name, self.sizes(name), self.schema, self.labels(name) if self.share_labels else None)

    def centralised(self) -> Federated:
        """The same rows, parts and scale, all held by one client, for training on centralised data."""
        return Federated(centralise(self.client_rows), self.share_labels)

    def digest(self) -> str:
        """SHA-256 over the arrays and the index."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        held = self.client_rows
        digest = hashlib.sha256()
        for array in (held.x, held.y, held.rows, held.bounds, held.scaling.mean, held.scaling.deviation):
            digest.update(f"{array.dtype.str}{array.shape};".encode())
            digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
        about = (self.schema, self.names, self.benchmark, held.scaling.logarithm)
        digest.update(repr(about + ((self.held_out,) if self.held_out else ())).encode())
        return digest.hexdigest()

    def save(self, folder: str | Path) -> None:
        """Write the federation to a folder that `attach` reads."""
        storage.write(Path(folder), *self.taken_apart())

    @classmethod
    def attach(cls, folder: str | Path) -> Federated:
        """A saved federation, mapped into memory: processes on one machine share its pages."""
        return cls.put_together(*storage.read(Path(folder)))

    def taken_apart(self) -> tuple[dict[str, Array], dict[str, Any]]:
        """The federation as arrays and plain data, the arguments of `put_together`."""
        held = self.client_rows
        arrays = {"x": held.x, "y": held.y, "rows": held.rows, "bounds": held.bounds}
        if len(held.fill):
            arrays["fill"] = held.fill
        if len(held.scaling.mean):
            arrays |= {"mean": held.scaling.mean, "deviation": held.scaling.deviation}
        index = {
            "names": self.names,
            "benchmark": self.benchmark,
            "held_out": self.held_out,
            "logarithm": held.scaling.logarithm,
            "preparation": self.preparation.plain(),
            "share_labels": self.share_labels,
            "digest": self.digest(),
            "rules": held.rules and asdict(held.rules),
        }
        return arrays, index

    @classmethod
    def put_together(cls, arrays: dict[str, Array], index: dict[str, Any]) -> Federated:
        """The inverse of `taken_apart`; the arrays are used as they are, not copied."""
        nothing = np.zeros((0, 0), dtype=np.float32)
        rules = index.get("rules")
        scaling = Scaling(index["logarithm"], arrays.get("mean", nothing), arrays.get("deviation", nothing))
        client_rows = ClientRows(
            arrays["x"],
            arrays["y"],
            arrays["rows"],
            arrays["bounds"],
            scaling,
            index["names"],
            index["benchmark"],
            index["held_out"],
            parse(index["preparation"], "data"),
            arrays.get("fill", nothing),
            None if rules is None else PreparationRules(**{**rules, "split": tuple(rules["split"])}),
        )
        federated = cls(client_rows, index["share_labels"])
        federated._digest = index["digest"]
        return federated

    def __repr__(self) -> str:
        shape = "x".join(str(size) for size in self.schema.shape)
        tested = sum(self.sizes(name)["test"] for name in self.benchmark)
        test = f" + {tested:,} test" if tested else ""
        if self.held_out:
            test += f", {len(self.held_out)} clients held out"
        return (
            f"Federated({len(self.names):,} clients, {self.schema.kind} rows of {shape}, "
            f"{self.schema.outputs} classes, {self.rows:,} rows{test})"
        )


def _plain(values: Any) -> Array:
    """An array; words stored as Python objects, as in pandas tables, become text."""
    array = np.asarray(values)
    words = array.dtype == object and all(isinstance(value, str) for value in array.flat)
    return array.astype(np.str_) if words else array


def histogram(federated: Federated, held_out: bool = False) -> Indices:
    """Rows per client (in the order of `names`, or of those that are `held_out`) and class, over all parts; benchmark
    slices are not clients."""
    held = federated.client_rows
    first = len(held.bounds) - len(federated.held_out)
    bounds = held.bounds[first:] if held_out else held.bounds[: len(federated.names)]
    classes = federated.schema.outputs
    sizes = bounds[:, 3] - bounds[:, 0]
    owner = np.repeat(np.arange(len(sizes)), sizes)
    labels = held.y[held.rows[bounds[0, 0] : bounds[-1, 3]]] if len(bounds) else held.y[:0]
    return np.bincount(owner * classes + labels, minlength=len(sizes) * classes).reshape(len(sizes), classes)
