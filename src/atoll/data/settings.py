"""The `[data]` table of an experiment file."""

from __future__ import annotations

import math
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from atoll.data.source import Missing
from atoll.data.split import Blocks, check_shares
from atoll.errors import ConfigError, DataError, nearest
from atoll.preparation.cells import MISSING_WORDS
from atoll.preparation.value import DatePart, Scale
from atoll.registry import find, names

Categories = Literal["refuse", "code", "onehot"]
SITES = "sites"  # the name of the data of a real federation, which every site holds itself

PARTITIONS = {  # the number each kind takes, if any
    "iid": None,
    "natural": None,
    "classes": int,
    "shards": int,
    "dirichlet": float,
    "quantity": float,
}


class PartitionRule(NamedTuple):
    """A parsed partition: `classes:5` is kind "classes" with number 5."""

    kind: str
    number: float = 0.0

    def text(self) -> str:
        """As it is written in settings."""
        return f"{self.kind}:{self.number:g}" if PARTITIONS[self.kind] is not None else self.kind


class DataSettings(BaseModel):
    """Where the data comes from and how it is partitioned. None stands for the data set's own default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: StrictStr | None = Field(None, description="a data set of the catalogue, see `atoll datasets`")
    folder: StrictStr | None = Field(None, description="own data: one CSV or NPZ per client, or client/class/*.png")
    clients: StrictInt | None = Field(None, description="default: 10; natural partition: all")
    partition: StrictStr | None = Field(None, description="iid, natural, classes:K, shards:K, dirichlet:A, quantity:A")
    only: tuple[StrictStr, ...] | None = Field(None, description="natural partition: the names of the clients to use")
    exclude: tuple[StrictStr, ...] | None = Field(None, description="natural partition: clients that are left out")
    holdout_clients: StrictFloat | tuple[StrictStr, ...] | None = Field(
        None, description="whole clients that only test the result: a share of them, or their names"
    )
    rows: StrictInt | None = Field(None, description="use this number of training rows, drawn at random by class")
    test_rows: StrictInt | None = Field(None, description="use this number of rows of the official test set")
    size: StrictInt | None = Field(None, description="celeba, imagenet: the side of the images in pixels")
    attributes: tuple[StrictStr, ...] | None = Field(
        None, description="celeba: every combination of these is a class; default Smiling, Male, Mouth_Slightly_Open"
    )
    split: tuple[StrictFloat, StrictFloat, StrictFloat] | None = Field(
        None,
        description="each client's train, validation and test share; default 0.6, 0.2, 0.2 or, with an "
        "official test set, 0.8, 0.2, 0",
    )
    blocks: Blocks | None = Field(
        None,
        description="random (by class), shuffled (not by class), contiguous (order of time), "
        "by_class (time in a class), official",
    )
    scale: Scale | None = Field(
        None,
        description="none, client, federated (count, mean and variance leave the client); "
        "default: federated for tables, none for images",
    )
    logarithm: StrictBool | None = Field(None, description="take log(1 + |x|), keeping the sign, before scaling")
    test: StrictStr | None = Field(None, description="own data: a file or folder with test rows that no client holds")
    label: Annotated[StrictStr, Field(min_length=1)] = Field("label", description="own data: the column of the class")
    classes: tuple[StrictStr, ...] | None = Field(None, description="own data: the classes that may occur, as a check")
    client_column: StrictStr | None = Field(None, description="own data in one file: the column of the client's name")
    drop: tuple[StrictStr, ...] | None = Field(None, description="own data: columns that are not used")
    missing: Missing | None = Field(None, description="refuse, or fill with the client's mean, median, or zero")
    missing_words: tuple[StrictStr, ...] | None = Field(
        None, description="own data: cells that mean a missing value, besides the empty one; default na, n/a, nan, ..."
    )
    categories: Categories = Field("refuse", description="text features: refuse, code (whole numbers), onehot")
    max_categories: Annotated[StrictInt, Field(ge=2)] = Field(
        50, description="own data: a text column with more different values is refused"
    )
    dates: dict[StrictStr, tuple[DatePart, ...]] | None = Field(
        None, description="own data: what to make of a column of dates: days (since the first), month, weekday, hour"
    )
    date_order: Literal["dmy", "mdy"] = Field("dmy", description="own data: how 03/04/2024 is read")
    units: dict[StrictStr, StrictStr] | None = Field(None, description="own data: units of columns, for model cards")
    window: Annotated[StrictInt, Field(ge=2)] | None = Field(
        None, description="own tables of series: this many consecutive rows make one row; the last one's label counts"
    )
    window_step: Annotated[StrictInt, Field(ge=1)] | None = Field(
        None, description="rows from one window to the next; default: the window, so that none overlap"
    )
    separator: Annotated[StrictStr, Field(min_length=1, max_length=1)] | None = Field(
        None, description="own CSV: between columns; default: detected"
    )
    decimal: Literal[".", ","] | None = Field(None, description="own CSV: the decimal sign; default: detected")
    encoding: StrictStr | None = Field(None, description="own CSV: utf-8, cp1252, ...; default: detected")
    share_labels: StrictBool = Field(False, description="clients report their training rows per class")

    @field_validator("clients", "rows", "test_rows", "size")
    @classmethod
    def _at_least_one(cls, value: int | None, info: Any) -> int | None:
        least = {"clients": 1, "rows": 2, "test_rows": 2, "size": 8}[info.field_name]
        if value is not None and value < least:
            raise ConfigError(
                f"data.{info.field_name} = {value}: it must be {least} or more; raise it or leave it out",
                code="invalid-setting",
            )
        return value

    @field_validator("holdout_clients")
    @classmethod
    def _holdout_leaves_some(cls, value: float | tuple[str, ...] | None) -> float | tuple[str, ...] | None:
        if isinstance(value, float) and not 0 < value < 1:
            raise ConfigError(
                f"data.holdout_clients = {value}: a share of the clients is between 0 and 1; write 0.2, or names",
                code="invalid-setting",
            )
        return value

    @field_validator("dates")
    @classmethod
    def _dates_have_parts(cls, value: dict[str, tuple[str, ...]] | None) -> dict[str, tuple[str, ...]] | None:
        for name, parts in (value or {}).items():
            if not parts or len(set(parts)) != len(parts):
                raise ConfigError(
                    f"data.dates.{name} = {list(parts)}: name one or more of days, month, weekday, hour, each once",
                    code="invalid-setting",
                )
        return value

    @field_validator("partition")
    @classmethod
    def _partition_is_known(cls, value: str | None) -> str | None:
        if value is not None:
            parse_partition(value)
        return value

    @field_validator("split")
    @classmethod
    def _shares_fit(cls, value: tuple[float, float, float] | None) -> tuple[float, float, float] | None:
        if value is not None:
            try:
                check_shares(value)
            except DataError as error:
                raise ConfigError(f"data.{error}", code="invalid-split") from None
        return value

    @model_validator(mode="after")
    def _one_origin(self) -> DataSettings:
        if "" in (self.name, self.folder):
            raise ConfigError(
                "data.name or data.folder is empty; give the name of a data set or a folder of own data",
                code="not-one-data-source",
            )
        if (self.name is None) == (self.folder is None):
            both = "both are given" if self.name is not None else "neither is given"
            raise ConfigError(
                f"data.name and data.folder: {both}; give the name of a data set or a folder of own data",
                code="not-one-data-source",
            )
        for own in ("client_column", "test") if self.name is not None else ():
            if getattr(self, own) is not None:
                raise ConfigError(
                    f"data.{own} = '{getattr(self, own)}' is for own data only; leave it out",
                    code="inapplicable-setting",
                )
        for own in ("exclude", "holdout_clients") if self.name == SITES else ():
            if getattr(self, own) is not None:
                raise ConfigError(
                    f"data.{own} is not for the data of real sites; leave it out, and choose sites with data.only",
                    code="inapplicable-setting",
                )
        if self.window is not None and self.client_column is not None:
            raise ConfigError(
                "data.window: a window may not cross clients; give each client a file of its own, or leave out "
                "data.client_column",
                code="inapplicable-setting",
            )
        if self.window_step is not None and self.window is None:
            raise ConfigError("data.window_step is for data.window only; leave it out", code="inapplicable-setting")
        if self.folder is not None and (self.size is not None or self.attributes is not None):
            raise ConfigError(
                "data.size and data.attributes are for celeba and imagenet only; leave them out",
                code="inapplicable-setting",
            )
        return self

    @property
    def words_for_missing(self) -> tuple[str, ...]:
        """The cells that mean a missing value, in lower case."""
        if self.missing_words is None:
            return MISSING_WORDS
        return ("", *(word.lower() for word in self.missing_words))


def checked_settings(table: dict[str, Any]) -> DataSettings:
    """The settings of a table given in Python; lists and tuples are the same there."""
    plain = {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
    try:
        return DataSettings.model_validate(plain)
    except ValidationError as problem:
        first = problem.errors()[0]
        name = str(first["loc"][0]) if first["loc"] else ""
        if first["type"] == "extra_forbidden":
            raise ConfigError(
                f"data.{name}: unknown setting; {nearest(name, DataSettings.model_fields)}", code="unknown-setting"
            ) from None
        raise ConfigError(f"data.{name} = {first['input']!r}: {first['msg']}", code="invalid-setting") from None


def parse_partition(text: str) -> PartitionRule:
    """`dirichlet:0.5` -> ("dirichlet", 0.5); refuses unknown kinds and impossible numbers."""
    kind, colon, number = text.partition(":")
    if kind not in PARTITIONS:
        raise ConfigError(f"data.partition = '{text}': unknown; {nearest(kind, PARTITIONS)}", code="unknown-partition")
    wanted = PARTITIONS[kind]
    if wanted is None:
        if colon:
            raise ConfigError(
                f"data.partition = '{text}': {kind} takes no number; write {kind}", code="needless-partition-number"
            )
        return PartitionRule(kind)
    example = "2" if wanted is int else "0.5"
    try:
        value = wanted(number)
    except ValueError:
        rule = "a whole number" if wanted is int else "a number"
        raise ConfigError(
            f"data.partition = '{text}': {kind} takes {rule}; write {kind}:{example}", code="invalid-partition-number"
        ) from None
    if not math.isfinite(value) or value <= 0:
        raise ConfigError(
            f"data.partition = '{text}': the number must be above 0; write {kind}:{example}",
            code="invalid-partition-number",
        )
    return PartitionRule(kind, value)


def name_or_folder(word: str) -> dict[str, str]:
    """What `--data WORD` means: a data set (its name, or module:attribute), or a folder or file of own data."""
    known = names("datasets")
    if word in known:
        return {"name": word}
    if Path(word).exists():
        return {"folder": word}
    if ":" in word:
        find("datasets", word)  # what is wrong with it is reported now
        return {"name": word}
    place = Path(word)
    folders = [f"{place.parent / one.name}/" for one in place.parent.glob("*/")] if place.parent.is_dir() else []
    close = get_close_matches(f"{place}/", folders, n=1, cutoff=0.8)
    hint = f"did you mean the folder '{close[0]}'? known: {', '.join(sorted(known))}" if close else nearest(word, known)
    raise DataError(f"'{word}' is neither a data set nor an existing folder; {hint}", code="unknown-dataset")
