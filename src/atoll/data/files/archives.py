"""One client's rows in a NumPy archive: `x`, `y`, and optionally `feature_names`, `class_names` and `client`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from atoll.core.messages import Array
from atoll.data.files.agreement import Agreement, DataDescription, FileRows, Kind, Problem, too_few_rows
from atoll.data.files.formats import read_npz
from atoll.data.settings import DataSettings
from atoll.data.source import whole_numbers
from atoll.errors import DataError


@dataclass(frozen=True)
class Archive:
    """An archive's arrays, in memory."""

    kind: ClassVar[Kind] = "npz"
    path: Path
    arrays: dict[str, Array]

    @classmethod
    def open(cls, path: Path) -> Archive:
        return cls(path, read_npz(path, ("x", "y"), ("client", "feature_names", "class_names")))

    @property
    def rows(self) -> int:
        return len(self.arrays["y"])

    def only(self, rows: Sequence[int]) -> Archive:
        """The same archive with some of its rows."""
        by_row = ("x", "y", "client")
        return Archive(self.path, {name: one[rows] if name in by_row else one for name, one in self.arrays.items()})

    def problems(self, settings: DataSettings, as_text: Collection[str] = ()) -> list[Problem]:
        x, y = self.arrays["x"], self.arrays["y"]
        if x.dtype.kind not in "buif" or y.dtype.kind not in "buifU":
            text = f"'{self.path}': x is {x.dtype} and y {y.dtype}; x must be numbers and y whole numbers or words"
            return [Problem("wrong-array-type", text)]
        if x.ndim < 2 or y.ndim != 1 or len(x) != len(y):
            text = f"'{self.path}': x has shape {x.shape} and y {y.shape}; every row of x needs one label in y"
            return [Problem("label-count-mismatch", text)]
        found = too_few_rows(self.path, self.path.stem, len(y))
        if (settings.missing or "refuse") == "refuse" and x.dtype.kind == "f" and np.isnan(x).any():
            row, *place = (int(index) for index in np.argwhere(np.isnan(x))[0])
            found.append(
                Problem(
                    "missing-value",
                    f"'{self.path}': x has a missing value in row {row}, column {', '.join(map(str, place))}; set "
                    "data.missing to 'mean', 'median' or 'zero' to fill it, or remove the row",
                    ("missing", "mean"),
                )
            )
        if x.dtype.kind == "f" and np.isinf(x).any():
            row = int(np.argwhere(np.isinf(x))[0][0])
            text = f"'{self.path}': row {row} of x holds an infinite value; correct or remove it"
            found.append(Problem("infinite-value", text))
        try:
            whole_numbers(y, f"'{self.path}'")
        except DataError as problem:
            found.append(Problem(problem.code, str(problem)))
        return found

    def describe(self, settings: DataSettings, as_text: Collection[str] = ()) -> DataDescription:
        x, y = self.arrays["x"], self.arrays["y"]
        return DataDescription(
            kind=self.kind,
            labels=np.unique(whole_numbers(y, f"'{self.path}'")).tolist(),
            features=self._names("feature_names"),
            shape=x.shape[1:],
            dtype=x.dtype.name if x.ndim > 2 else "",
            classes=self._names("class_names"),
        )

    def read(self, agreement: Agreement, settings: DataSettings, unseen: bool = False) -> FileRows:
        labels = whole_numbers(self.arrays["y"], f"'{self.path}'")
        return FileRows(self.arrays["x"], agreement.class_numbers(labels, self.path))

    def _names(self, name: str) -> list[str] | None:
        return [str(word) for word in self.arrays[name]] if name in self.arrays else None
