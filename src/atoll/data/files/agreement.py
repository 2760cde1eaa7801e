"""One form for the data of all clients: each client's files are described, the descriptions agree, the rows are read.

    describe   beside the files: columns or shapes, and the classes they hold
    agree      where the descriptions meet: one form for all, or an error that names the client that differs
    read       beside the files: their rows as arrays in that form

A folder does all three for each of its files. A site describes and reads its own files; the server agrees. No row is
part of a description, so none leaves a site.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr, model_validator

from atoll.core.messages import Array
from atoll.data.partition import MINIMUM
from atoll.data.settings import DataSettings
from atoll.data.source import channel_first_shape
from atoll.errors import DataError, nearest
from atoll.preparation.value import ImageForm, Preparation, RawColumn, SeriesWindow, TextFormat, of_images, of_table

Kind = Literal["table", "npz", "images"]
Labels = list[StrictStr] | list[StrictBool] | list[StrictInt]
KINDS = {"table": "a table", "npz": "an NPZ archive", "images": "images"}


class Problem(NamedTuple):
    """Something that keeps data from being used, or that a person should know; in one line, with a hint.

    `setting` is a setting of `[data]` that would help, and its value: ("missing", "mean"). `column` is the column that
    the problem is about, if it is about one.
    """

    code: str
    text: str
    setting: tuple[str, Any] | None = None
    column: str = ""


def first_problem(problems: Sequence[Problem]) -> None:
    """Raise the first problem, if there is one."""
    for problem in problems:
        raise DataError(problem.text, code=problem.code)


def too_few_rows(path: Path, name: str, rows: int) -> list[Problem]:
    """The problem of the client of this name if it has too few rows to be split."""
    if rows >= MINIMUM:
        return []
    held = f"{rows} row" if rows == 1 else f"{rows} rows"
    text = f"'{path}' has {held}; every client needs at least {MINIMUM}: add rows, or leave it out with data.exclude"
    return [Problem("too-few-rows", text, ("exclude", [name]))]


class DataDescription(BaseModel):
    """What one client's files hold: enough to see whether the data of all clients fits together."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    labels: Labels = Field(min_length=1)  # the different labels, words or whole numbers
    features: list[StrictStr] | None = None  # columns (table) or feature names, if given (npz)
    text: dict[StrictStr, list[StrictStr]] = {}  # table: the different values of each text column
    dates: dict[StrictStr, StrictStr] = {}  # table: the earliest day of each column of dates, or ""
    shape: tuple[StrictInt, ...] = ()  # npz: of one row; images: width and height
    dtype: StrictStr = ""  # npz with images: bytes are divided by 255 and floats are not
    classes: list[StrictStr] | None = None  # npz: class names, if given
    grey: StrictBool = False  # images: all of them are grey

    @model_validator(mode="after")
    def _is_complete(self) -> DataDescription:
        needed = {"table": self.features, "npz": self.shape, "images": len(self.shape) == 2 and not self.numbered}
        if not needed[self.kind] or not {*self.text, *self.dates} <= set(self.features or ()):
            raise ValueError("an incomplete description")
        for day in filter(None, self.dates.values()):
            date.fromisoformat(day)
        return self

    @property
    def numbered(self) -> bool:
        """The labels are whole numbers, not words."""
        return not isinstance(self.labels[0], str)

    def form(self) -> tuple[object, ...]:
        """Equal for clients whose data can be used together. The columns of tables may differ in order."""
        if self.kind == "table":
            return ("table", sorted(self.features or ()), sorted(self.text), sorted(self.dates), self.numbered)
        if self.kind == "npz":
            return ("npz", self.shape, self.dtype, self.numbered, self.features, self.classes)
        return ("images", self.shape)


class Agreement(BaseModel):
    """The form of all clients' rows. Every client that reads by it has the same columns, codes and classes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind
    preparation: Preparation  # without statistics
    labels: Labels | None  # the label of each class; None: class names came with the data

    @property
    def classes(self) -> list[str]:
        return self.preparation.classes

    @property
    def in_words(self) -> bool:
        """The labels are words, not whole numbers."""
        return self.labels is not None and isinstance(self.labels[0], str)

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


class ClientFiles(Protocol):
    """One client's files, opened: a table, an archive or a folder of images."""

    kind: ClassVar[Kind]

    @property
    def path(self) -> Path:
        """The file, or the folder of images."""

    @property
    def rows(self) -> int: ...

    def problems(self, settings: DataSettings, as_text: Collection[str] = ()) -> list[Problem]:
        """Everything that keeps these files from being used. The columns `as_text` are text, whatever they hold."""
        ...

    def describe(self, settings: DataSettings, as_text: Collection[str] = ()) -> DataDescription:
        """For files that have rows, and no problems but that they may be too few."""
        ...

    def read(self, agreement: Agreement, settings: DataSettings, unseen: bool = False) -> FileRows:
        """The rows in the agreed form. Files that were described before and no longer fit have changed.

        Files that are `unseen` did not decide the form: words that are unknown to it count as no word (`onehot`) or as
        a missing value.
        """


def parse_description(received: object) -> DataDescription:
    """The description that a site sent. It is not trusted: anything else is refused."""
    try:
        found = DataDescription.model_validate(received)
        json.dumps(found.model_dump(), ensure_ascii=False).encode()  # half a surrogate pair fits into no file
    except ValueError:
        raise DataError(
            "the site's description of its data is not valid; install the server's version of Atoll on the site",
            code="invalid-description",
        ) from None
    return found


def differences(
    descriptions: Mapping[str, DataDescription], declared: Sequence[str] | None = None, word: str = "site "
) -> dict[str, Problem]:
    """The clients whose data does not fit, and why; the form that most clients have counts, in doubt the first.

    `declared` lists all classes that may occur. `word` precedes the name of another client in messages.
    """
    usual = usual_form(descriptions)
    found: dict[str, Problem] = {}
    for name, one in descriptions.items():
        undeclared = [str(label) for label in one.classes or one.labels if str(label) not in (declared or ())]
        if one.form() != descriptions[usual].form():
            found[name] = difference(one, descriptions[usual], f"{word}'{usual}'")
        elif declared is not None and undeclared:
            text = f"class '{undeclared[0]}' is not among data.classes; {nearest(undeclared[0], declared)}"
            found[name] = Problem("unknown-class", text)
    return found


def usual_form(descriptions: Mapping[str, DataDescription]) -> str:
    """The first client whose data has the form that most have."""
    forms = {name: repr(one.form()) for name, one in descriptions.items()}
    counts = Counter(forms.values())
    return max(forms, key=lambda name: counts[forms[name]], default="")


def difference(own: DataDescription, usual: DataDescription, other: str) -> Problem:
    """How the data of one client differs from that of `other`."""
    if own.kind != usual.kind:
        text = f"its data is {KINDS[own.kind]}, that of {other} is {KINDS[usual.kind]}; all clients need the same kind"
        return Problem("mixed-file-kinds", text)
    if own.kind == "images":
        sizes = [f"{one.shape[0]}x{one.shape[1]}" for one in (own, usual)]
        text = f"its images have {sizes[0]} pixels, those of {other} {sizes[1]}; all clients need one size"
        return Problem("picture-sizes-differ", text)
    if own.shape != usual.shape:
        text = f"its rows have shape {own.shape}, those of {other} {usual.shape}; all clients need the same"
        return Problem("row-shapes-differ", text)
    if own.dtype != usual.dtype:
        text = f"its pixels have type {own.dtype}, those of {other} {usual.dtype}; all clients need the same"
        return Problem("pixel-types-differ", text)
    mine, theirs = (set(one.features or ()) for one in (own, usual))
    if own.kind == "table" and theirs - mine:
        text = f"it has no column '{min(theirs - mine)}', which {other} has; all clients need the same columns"
        return Problem("columns-differ", text)
    if own.kind == "table" and mine - theirs:
        text = f"it has a column '{min(mine - theirs)}', which {other} does not have; all clients need the same columns"
        return Problem("columns-differ", text, ("drop", sorted(mine - theirs)))
    if mixed := sorted({*(set(own.text) ^ set(usual.text)), *(set(own.dates) ^ set(usual.dates))}):
        held = (_held(own, mixed[0]), _held(usual, mixed[0]))
        text = f"its column '{mixed[0]}' holds {held[0]}, that of {other} {held[1]}; all clients need the same"
        return Problem("column-kinds-differ", text, ("drop", mixed), mixed[0])
    if own.numbered != usual.numbered:
        held = ("numbers", "words") if own.numbered else ("words", "numbers")
        text = f"its labels are {held[0]}, those of {other} are {held[1]}; all clients need the same"
        return Problem("label-kinds-differ", text)
    text = f"its class_names or feature_names are not those of {other}; all clients need the same, in one order"
    return Problem("names-differ", text)


def _held(description: DataDescription, column: str) -> str:
    return "text" if column in description.text else "dates" if column in description.dates else "numbers"


def agree(descriptions: Mapping[str, DataDescription], settings: DataSettings, word: str = "site ") -> Agreement:
    """One form for all, or a `DataError` that names the first client that differs. `word` as for `differences`.

    The descriptions come in the order of the clients' names: the first one decides the order of the columns.
    """
    if not descriptions:
        raise DataError("no site has described its data; start the sites, then the run", code="no-site-data")
    for name, problem in differences(descriptions, settings.classes, word).items():
        raise DataError(f"{word}'{name}': {problem.text}", code=problem.code)
    first_problem(joint_problems(descriptions, settings, word))
    every = list(descriptions.values())
    first, labels = every[0], _labels(every)
    return Agreement(
        kind=first.kind,
        preparation=_preparation(every, settings, first.classes or [str(label) for label in labels]),
        labels=None if first.classes else labels,
    )


def joint_problems(
    descriptions: Mapping[str, DataDescription], settings: DataSettings, word: str = "site "
) -> list[Problem]:
    """What is wrong with data whose form is the same for all clients, taken together."""
    found, every = [], list(descriptions.values())
    classes = every[0].classes or _labels(every)
    if len(classes) < 2:
        others = f" and {len(every) - 1} more" if len(every) > 1 else ""
        text = f"{word}'{next(iter(descriptions))}'{others}: only one class, '{classes[0]}'"
        found.append(Problem("single-class", f"{text}; a classifier needs rows of at least two classes"))
    for name in every[0].text:
        different = len({one for description in every for one in description.text[name]})
        if different > settings.max_categories:
            text = f"column '{name}' is text and has {different} different values over all clients, more than"
            hint = f"data.max_categories = {settings.max_categories}; leave it out with data.drop, or raise the limit"
            found.append(Problem("too-many-categories", f"{text} {hint}", ("drop", [name]), name))
    return found


def _labels(every: Sequence[DataDescription]) -> list[Any]:
    """The different labels of all clients, in the order of the classes."""
    labels: list[Any] = np.unique(np.concatenate([np.array(one.labels) for one in every])).tolist()
    if every[0].kind == "images" and all(label.isdecimal() for label in labels):
        labels.sort(key=int)
    return labels


def _preparation(every: Sequence[DataDescription], settings: DataSettings, classes: list[str]) -> Preparation:
    """How raw rows of all clients become numbers; filling and scaling come later."""
    first = every[0]
    if first.kind == "images":
        width, height = first.shape
        form = ImageForm(channels=1 if all(one.grey for one in every) else 3, height=height, width=width)
        found = Preparation(kind="image", image=form, classes=classes)
    elif first.kind == "npz" and len(first.shape) > 1:
        found = of_images(channel_first_shape(first.shape), np.dtype(first.dtype), classes)
    elif first.kind == "npz":
        found = of_table(first.features or [f"x{place}" for place in range(first.shape[0])], classes)
    else:
        window = None
        if settings.window is not None:
            window = SeriesWindow(steps=settings.window, stride=settings.window_step or settings.window)
        found = Preparation(
            kind="table",
            columns=[_column(name, every, settings) for name in first.features or ()],
            window=window,
            missing_words=list(settings.words_for_missing),
            text_format=TextFormat(encoding=settings.encoding, separator=settings.separator, decimal=settings.decimal),
            classes=classes,
        )
    ignored = [name for name in (settings.label, settings.client_column, *(settings.drop or ())) if name]
    return found.model_copy(update={"ignored": ignored, "statistics": None})


def _column(name: str, every: Sequence[DataDescription], settings: DataSettings) -> RawColumn:
    unit = (settings.units or {}).get(name, "")
    if name in every[0].text:
        words = sorted({word for one in every for word in one.text[name]})
        coding: Any = "onehot" if settings.categories == "onehot" else "code"
        return RawColumn(name=name, kind="category", unit=unit, words=words, coding=coding)
    if name in every[0].dates:
        parts = list((settings.dates or {}).get(name, ("days",)))
        days = [one.dates[name] for one in every if one.dates[name]]
        return RawColumn(
            name=name,
            kind="date",
            unit=unit,
            parts=parts,
            origin=min(days, default="1970-01-01"),
            order=settings.date_order,
        )
    return RawColumn(name=name, unit=unit)
