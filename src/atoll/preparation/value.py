"""The preparation: everything between a raw row and the network, as one typed value.

It is stored with every model, so that a model answers raw rows wherever it goes. `answers.py` reads raw rows by its
plain form; the rest is arithmetic on numbers, in this order:

    categories    a code stays a number (`code`) or becomes one input for each word (`onehot`)
    gaps          filled, where `statistics.fill` has values
    pixels        divided by their largest value, `image.largest`
    logarithm     log(1 + |x|) with the sign of x
    scaling       minus `statistics.mean`, over `statistics.deviation`, by input (tables) or channel (images)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from atoll.core.messages import Schema
from atoll.errors import DataError
from atoll.preparation.answers import FORMAT, check_format
from atoll.preparation.cells import MISSING_WORDS
from atoll.preparation.tables import RowError

DatePart = Literal["days", "month", "weekday", "hour"]
Scale = Literal["none", "client", "federated"]
LARGEST_PIXEL = {"uint8": 255.0, "uint16": 65535.0}


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class RawColumn(_Value):
    """One column of a table, and how it becomes numbers."""

    name: str
    kind: Literal["number", "category", "date"] = "number"
    unit: str = ""
    words: list[str] = []  # category: those known, in the order of their codes
    coding: Literal["code", "onehot"] = "code"  # category
    parts: list[DatePart] = []  # date: the numbers that are made of it
    origin: str = "1970-01-01"  # date: `days` are counted from here
    order: Literal["dmy", "mdy"] = "dmy"  # date: how 03/04/2024 is read

    @property
    def values(self) -> list[str]:
        """The names of the numbers that a raw cell gives."""
        return [f"{self.name} ({part})" for part in self.parts] if self.kind == "date" else [self.name]

    @property
    def inputs(self) -> list[str]:
        """The names of the network's inputs."""
        if self.kind == "category" and self.coding == "onehot":
            return [f"{self.name}={word}" for word in self.words]
        return self.values


class ImageForm(_Value):
    """Images of one size. `fit` says how a file of another size is brought to it; exact: it is refused."""

    channels: int
    height: int
    width: int
    dtype: Literal["uint8", "uint16", "float32"] = "uint8"
    largest: float = 255.0  # what pixels are divided by
    fit: Literal["exact", "stretch", "crop"] = "exact"


class SeriesWindow(_Value):
    """Consecutive rows of a series that make one row for the network."""

    steps: int
    stride: int


class TextFormat(_Value):
    """How a CSV file is written, as far as the settings say it; the rest is detected in every file."""

    encoding: str | None = None
    separator: str | None = None
    decimal: Literal[".", ","] | None = None


class Statistics(_Value):
    """Numbers that were computed from rows. Empty lists: the network needs none."""

    fill: list[float] | None = None  # of each input, for gaps; None: gaps are refused
    mean: list[float] = []
    deviation: list[float] = []


class Preparation(_Value):
    """See the module. `statistics` is None where every client scales by its own, which never left it."""

    format: Literal[1] = FORMAT  # type: ignore[assignment]
    kind: Literal["image", "table"]
    columns: list[RawColumn] = []
    image: ImageForm | None = None
    window: SeriesWindow | None = None
    ignored: list[str] = []  # columns that rows may have and that are not used: the label, the client
    missing_words: list[str] = list(MISSING_WORDS)
    text_format: TextFormat = TextFormat()
    logarithm: bool = False
    scale: Scale = "none"
    statistics: Statistics | None = Statistics()
    classes: list[str]

    @model_validator(mode="after")
    def _is_consistent(self) -> Preparation:
        if (self.kind == "image") != (self.image is not None) or (self.kind == "table") != bool(self.columns):
            raise ValueError("a preparation is of a table with columns or of images")
        if self.statistics is not None:
            channels = self.image.channels if self.image is not None else len(self.inputs)
            mean, deviation, fill = self.statistics.mean, self.statistics.deviation, self.statistics.fill
            if len(mean) not in (0, channels) or len(mean) != len(deviation) or any(one <= 0 for one in deviation):
                raise ValueError(f"{len(mean)} means and {len(deviation)} deviations for {channels} inputs")
            if fill is not None and len(fill) != len(self.inputs):
                raise ValueError(f"{len(fill)} fill values for {len(self.inputs)} inputs")
        return self

    @property
    def values(self) -> list[str]:
        """The names of the numbers of a raw row, of every step of a window in turn."""
        return self._repeated([name for column in self.columns for name in column.values])

    @property
    def inputs(self) -> list[str]:
        """The names of the network's inputs for a table."""
        return self._repeated([name for column in self.columns for name in column.inputs])

    def _repeated(self, names: list[str]) -> list[str]:
        if self.window is None:
            return names
        return [f"{name} [{step}]" for step in range(self.window.steps) for name in names]

    @property
    def row_schema(self) -> Schema:
        """The form of the rows that the network takes."""
        if self.image is not None:
            shape = (self.image.channels, self.image.height, self.image.width)
            return Schema("image", shape, tuple(self.classes))
        return Schema("table", (len(self.inputs),), tuple(self.classes), tuple(self.inputs))

    def plain(self) -> dict[str, Any]:
        """As it is stored, and as `answers.py` takes it. Most columns are just a name."""
        columns = [column.model_dump(mode="json", exclude_defaults=True) for column in self.columns]
        return {**self.model_dump(mode="json", exclude={"columns"}), "columns": columns}

    def with_statistics(self, found: Statistics) -> Preparation:
        """The same, with the statistics of one client."""
        return Preparation.model_validate({**self.plain(), "statistics": found.model_dump()})


def parse(stored: Mapping[str, Any], place: str) -> Preparation:
    """The preparation of this plain form; one that is damaged or newer is a `DataError` that names `place`."""
    try:
        check_format(stored, place)
        return Preparation.model_validate(stored)
    except RowError as problem:
        raise DataError(str(problem), code=problem.code) from None
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its values"
        raise DataError(
            f"'{place}': the preparation of raw rows is damaged ({where}: {first['msg']}); write it again",
            code="preparation-format",
        ) from None


def expanded(preparation: Preparation, values: Any) -> Any:
    """Rows of values as rows of the network's inputs, in single precision: with one input for each word of a one-hot
    category. Gaps remain NaN."""
    steps = 1 if preparation.window is None else preparation.window.steps
    blocks: list[Any] = []
    place = 0
    for column in preparation.columns * steps:
        width = len(column.values)
        block = values[:, place : place + width]
        place += width
        if column.kind == "category" and column.coding == "onehot":
            block = block == np.arange(len(column.words), dtype=np.float32)
        blocks.append(block)
    return np.concatenate(blocks, axis=1).astype(np.float32)


def of_table(names: Sequence[str], classes: Sequence[str]) -> Preparation:
    """Rows of numbers under these names."""
    return Preparation(kind="table", columns=[RawColumn(name=name) for name in names], classes=list(classes))


def of_images(shape: Sequence[int], dtype: np.dtype[Any], classes: Sequence[str]) -> Preparation:
    """Images as stored: channels, height, width. Unsigned integers are divided by their largest value."""
    stored: Any = dtype.name if dtype.name in LARGEST_PIXEL else "float32"
    channels, height, width = shape
    largest = LARGEST_PIXEL.get(stored, 1.0)
    form = ImageForm(channels=channels, height=height, width=width, dtype=stored, largest=largest)
    return Preparation(kind="image", image=form, classes=list(classes))
