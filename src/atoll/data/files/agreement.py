"""One form for the data of all clients: each client's files are described, the descriptions agree, the rows are read.

    describe   beside the files: columns or shapes, and the classes they hold
    agree      where the descriptions meet: one form for all, or an error that names the client that differs
    read       beside the files: their rows as arrays in that form

A folder does all three for each of its files. A site describes and reads its own files; the server agrees. No row is
part of a description, so none leaves a site.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, ValidationError, model_validator

from atoll.core.messages import Array
from atoll.data.settings import DataSettings
from atoll.errors import DataError, nearest

Kind = Literal["csv", "npz", "images"]
Labels = list[StrictStr] | list[StrictBool] | list[StrictInt]
KINDS = {"csv": "a CSV table", "npz": "an NPZ archive", "images": "images"}


class DataDescription(BaseModel):
    """What one client's files hold: enough to see whether the data of all clients fits together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    labels: Labels = Field(min_length=1)  # the different labels, words or whole numbers
    features: list[StrictStr] | None = None  # columns (csv) or feature names, if given (npz)
    text: dict[StrictStr, list[StrictStr]] = {}  # csv: the different values of each text column
    shape: tuple[StrictInt, ...] = ()  # npz: of one row; images: width and height
    dtype: StrictStr = ""  # npz with images: bytes are divided by 255 and floats are not
    classes: list[StrictStr] | None = None  # npz: class names, if given
    grey: StrictBool = False  # images: all of them are grey

    @model_validator(mode="after")
    def _is_complete(self) -> DataDescription:
        needed = {"csv": self.features, "npz": self.shape, "images": len(self.shape) == 2 and not self.numbered}
        if not needed[self.kind] or not set(self.text) <= set(self.features or ()):
            raise ValueError("an incomplete description")
        return self

    @property
    def numbered(self) -> bool:
        """The labels are whole numbers, not words."""
        return not isinstance(self.labels[0], str)

    def form(self) -> tuple[object, ...]:
        """Equal for clients whose data can be used together. The columns of tables may differ in order."""
        if self.kind == "csv":
            return ("csv", sorted(self.features or ()), sorted(self.text), self.numbered)
        if self.kind == "npz":
            return ("npz", self.shape, self.dtype, self.numbered, self.features, self.classes)
        return ("images", self.shape)


class Agreement(BaseModel):
    """The form of all clients' rows. Every client that reads by it has the same columns, codes and classes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    features: list[StrictStr] | None
    text: dict[StrictStr, list[StrictStr]]
    grey: StrictBool
    labels: Labels | None  # the label of each class; None: class names came with the data
    classes: list[StrictStr]

    def class_numbers(self, labels: Array, place: object) -> Array:
        """The labels as positions in the list of classes."""
        if self.labels is None:  # numbers are class numbers already, and words are looked up among the class names
            return labels
        number = {label: code for code, label in enumerate(self.labels)}
        found, inverse = np.unique(labels, return_inverse=True)
        for label in found.tolist():
            if label not in number:
                raise DataError(
                    f"'{place}': label '{label}' was not there when the run started; restore the data",
                    code="data-changed",
                )
        return np.array([number[label] for label in found.tolist()], dtype=np.int64)[inverse]


class FileRows(NamedTuple):
    """The rows of one client's files, before images are brought to channels-first."""

    x: Array
    y: Array
    features: list[str] | None


class ClientFiles(Protocol):
    """One client's files, opened: a table, an archive or a folder of images."""

    kind: ClassVar[Kind]

    @property
    def path(self) -> Path:
        """The file, or the folder of images."""

    def describe(self, settings: DataSettings, as_text: Collection[str] = ()) -> DataDescription:
        """Raises the `DataError` of the first thing that cannot be used. The columns `as_text` are text, whatever
        they hold here."""

    def read(self, agreement: Agreement, settings: DataSettings) -> FileRows:
        """The rows in the agreed form. Files that were described before and no longer fit have changed."""


def parse_description(received: object) -> DataDescription:
    """The description that a site sent. It is not trusted: anything else is refused."""
    try:
        return DataDescription.model_validate(received)
    except ValidationError:
        raise DataError(
            "the site's description of its data is not valid; install the server's version of Atoll on the site",
            code="invalid-description",
        ) from None


def differences(
    descriptions: Mapping[str, DataDescription], declared: Sequence[str] | None = None, word: str = "site "
) -> dict[str, DataError]:
    """The clients whose data does not fit, and why; the form that most clients have counts, in doubt the first.

    `declared` lists all classes that may occur. `word` precedes the name of another client in messages.
    """
    forms = {name: one.form() for name, one in descriptions.items()}
    counts = Counter(map(repr, forms.values()))
    usual = max(forms, key=lambda name: counts[repr(forms[name])], default="")
    found: dict[str, DataError] = {}
    for name, one in descriptions.items():
        undeclared = [str(label) for label in one.classes or one.labels if str(label) not in (declared or ())]
        if forms[name] != forms[usual]:
            found[name] = _difference(one, descriptions[usual], f"{word}'{usual}'")
        elif declared is not None and undeclared:
            found[name] = DataError(
                f"class '{undeclared[0]}' is not among data.classes; {nearest(undeclared[0], declared)}",
                code="unknown-class",
            )
    return found


def _difference(own: DataDescription, usual: DataDescription, other: str) -> DataError:
    """How the data of one client differs from that of `other`."""
    if own.kind != usual.kind:
        return DataError(
            f"its data is {KINDS[own.kind]}, that of {other} is {KINDS[usual.kind]}; all clients need the same kind",
            code="mixed-file-kinds",
        )
    if own.kind == "images":
        sizes = [f"{one.shape[0]}x{one.shape[1]}" for one in (own, usual)]
        return DataError(
            f"its images have {sizes[0]} pixels, those of {other} {sizes[1]}; all clients need one size",
            code="picture-sizes-differ",
        )
    if own.shape != usual.shape:
        return DataError(
            f"its rows have shape {own.shape}, those of {other} {usual.shape}; all clients need the same",
            code="row-shapes-differ",
        )
    if own.dtype != usual.dtype:
        return DataError(
            f"its pixels have type {own.dtype}, those of {other} {usual.dtype}; all clients need the same",
            code="pixel-types-differ",
        )
    mine, theirs = (set(one.features or ()) for one in (own, usual))
    if own.kind == "csv" and theirs - mine:
        return DataError(
            f"it has no column '{min(theirs - mine)}', which {other} has; all clients need the same columns",
            code="columns-differ",
        )
    if own.kind == "csv" and mine - theirs:
        return DataError(
            f"it has a column '{min(mine - theirs)}', which {other} does not have; all clients need the same columns",
            code="columns-differ",
        )
    if mixed := sorted(set(own.text) ^ set(usual.text)):
        held = ("text", "numbers") if mixed[0] in own.text else ("numbers", "text")
        return DataError(
            f"its column '{mixed[0]}' holds {held[0]}, that of {other} {held[1]}; all clients need the same",
            code="column-kinds-differ",
        )
    if own.numbered != usual.numbered:
        held = ("numbers", "words") if own.numbered else ("words", "numbers")
        return DataError(
            f"its labels are {held[0]}, those of {other} are {held[1]}; all clients need the same",
            code="label-kinds-differ",
        )
    return DataError(
        f"its class_names or feature_names are not those of {other}; all clients need the same, in one order",
        code="names-differ",
    )


def agree(
    descriptions: Mapping[str, DataDescription], declared: Sequence[str] | None = None, word: str = "site "
) -> Agreement:
    """One form for all, or a `DataError` that names the first client that differs. Arguments as for `differences`.

    The descriptions come in the order of the clients' names: the first one decides the order of the columns.
    """
    if not descriptions:
        raise DataError("no site has described its data; start the sites, then the run", code="no-site-data")
    for name, problem in differences(descriptions, declared, word).items():
        raise DataError(f"{word}'{name}': {problem}", code=problem.code)
    every = list(descriptions.values())
    first = every[0]
    labels = np.unique(np.concatenate([np.array(one.labels) for one in every])).tolist()
    if first.kind == "images" and all(label.isdecimal() for label in labels):
        labels.sort(key=int)
    classes = first.classes or [str(label) for label in labels]
    if len(classes) < 2:
        others = f" and {len(every) - 1} more" if len(every) > 1 else ""
        raise DataError(
            f"{word}'{next(iter(descriptions))}'{others}: only one class, '{classes[0]}'; a classifier needs rows of "
            "at least two classes",
            code="single-class",
        )
    return Agreement(
        kind=first.kind,
        features=first.features,
        text={name: sorted({value for one in every for value in one.text[name]}) for name in first.text},
        grey=all(one.grey for one in every),
        labels=None if first.classes else labels,
        classes=classes,
    )
