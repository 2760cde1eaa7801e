"""A data set as read, before it is partitioned: checked arrays, their schema and its default settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from atoll.core.messages import Array, Schema
from atoll.data.naming import check_names
from atoll.data.partition import Indices
from atoll.data.split import Blocks
from atoll.errors import DataError
from atoll.preparation.value import Preparation, Scale, of_images, of_table

if TYPE_CHECKING:
    from atoll.data.image_files import ImageFiles

Missing = Literal["refuse", "mean", "median", "zero"]
CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Defaults:
    """The data set's values for settings that are left out."""

    scale: Scale | None = None  # None: federated for tables, none for images
    logarithm: bool = False
    blocks: Blocks = "random"
    missing: Missing = "refuse"


@dataclass(frozen=True)
class Source:
    """`x` is channels-first in its own dtype, `y` holds class numbers. `groups` gives every row's natural client.

    `preparation` says how a raw row becomes a row of `x`; filling and scaling come later. With `images`, `x` (also that
    of `test`) holds the numbers of files that are not decoded yet.
    """

    x: Array
    y: Indices
    preparation: Preparation
    groups: Indices | None = None
    group_names: tuple[str, ...] = ()
    test: tuple[Array, Indices] | None = None
    defaults: Defaults = Defaults()
    parts: Indices | None = None  # of every row, if published: 0, 1, 2 for train, validation, test
    images: ImageFiles | None = None

    @cached_property
    def schema(self) -> Schema:
        return self.preparation.row_schema


@dataclass(frozen=True)
class Dataset:
    """A data set that is found by name: what it is, where it comes from and how it is read.

    `read` takes the data folder, or None where none is named, and the settings in `takes`. Without `present` the set
    needs no files: it is always there.
    """

    kind: Literal["image", "table"]
    rows: str  # for `atoll datasets`
    classes: int
    origin: str
    read: Callable[..., Source]
    takes: tuple[str, ...] = ()  # of "size" and "attributes"
    present: Callable[[Path], bool] | None = None  # whether its files are in this folder


def has_file(name: str, file: str) -> Callable[[Path], bool]:
    """Whether the data folder holds this file, itself or in a folder `name`; a pattern is looked for everywhere."""

    def present(folder: Path) -> bool:
        if "*" in file or "[" in file:
            return any(folder.rglob(file))
        return any((place / file).is_file() for place in (folder, folder / name))

    return present


def make_source(
    x: Array,
    y: Array,
    *,
    class_names: Sequence[str] | None = None,
    feature_names: Sequence[str] | None = None,
    groups: Indices | None = None,
    group_names: Sequence[str] = (),
    test: tuple[Array, Array] | None = None,
    defaults: Defaults = Defaults(),  # noqa: B008 - frozen
    parts: Indices | None = None,
    preparation: Preparation | None = None,
    what: str = "x and y",
) -> Source:
    """Check the arrays, move image channels first and number the classes. `what` names the data in messages. Without a
    `preparation`, raw rows are numbers in the order of the columns, or images as stored."""
    check_names(group_names)
    ready = channels_first(x, what)
    codes, classes = number_classes(y, class_names, what)
    if len(ready) != len(codes):
        raise DataError(
            f"{what}: x has {len(ready)} rows and y {len(codes)}; every row needs one label",
            code="label-count-mismatch",
        )
    if len(classes) < 2:
        raise DataError(
            f"{what}: only one class, '{classes[0]}'; a classifier needs rows of at least two classes",
            code="single-class",
        )
    kind: Literal["image", "table"] = "table" if ready.ndim == 2 else "image"
    features = tuple(str(name) for name in feature_names) if feature_names is not None else ()
    if kind == "table" and features and len(features) != ready.shape[1]:
        raise DataError(
            f"{what}: {len(features)} feature names for {ready.shape[1]} columns; give one name per column",
            code="feature-names-mismatch",
        )
    checked_test = None
    if test is not None:
        test_x = channels_first(test[0], f"{what} (test)").astype(ready.dtype, copy=False)
        test_y, _ = number_classes(test[1], classes if class_names is not None else list(classes), f"{what} (test)")
        if test_x.shape[1:] != ready.shape[1:] or len(test_x) != len(test_y):
            raise DataError(
                f"{what}: the test rows have shape {test_x.shape[1:]}, the others {ready.shape[1:]}",
                code="row-shapes-differ",
            )
        checked_test = (test_x, test_y)
    if preparation is None:
        names = features or [f"x{place}" for place in range(ready.shape[1])]
        shape = ready.shape[1:]
        preparation = of_table(names, classes) if kind == "table" else of_images(shape, ready.dtype, classes)
    return Source(ready, codes, preparation, groups, tuple(group_names), checked_test, defaults, parts)


def channel_first_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of one image, channels first, by the rule of `channels_first`."""
    if len(shape) == 2:
        return (1, *shape)
    return (shape[2], shape[0], shape[1]) if shape[2] in CHANNELS else tuple(shape)


def channels_first(x: Array, what: str) -> Array:
    """Tables stay (rows, features); images become (rows, channels, height, width).

    Three axes are images of one channel. With four axes, a last axis of size 1, 3 or 4 holds the channels; otherwise
    the second axis does. Small dtypes are kept; all others become float32.
    """
    if x.dtype == object or x.dtype.kind not in "buif":
        raise DataError(f"{what}: x holds {x.dtype} values; it must be an array of numbers", code="wrong-array-type")
    if x.ndim not in (2, 3, 4):
        raise DataError(
            f"{what}: x has shape {x.shape}; it must be (rows, features), (rows, height, width), "
            "(rows, height, width, channels) or (rows, channels, height, width)",
            code="wrong-array-shape",
        )
    if 0 in x.shape:
        raise DataError(
            f"{what}: x has shape {x.shape} and holds no values; leave it out or fill it", code="empty-array"
        )
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[3] in CHANNELS:
        x = np.moveaxis(x, 3, 1)
    if x.dtype not in (np.uint8, np.uint16, np.int8, np.int16, np.float32):
        with np.errstate(over="ignore"):
            x = x.astype(np.float32)
    if x.dtype.kind == "f" and np.isinf(x).any():
        raise DataError(
            f"{what}: row {_first_row(np.isinf(x))} of x holds an infinite value; correct or remove it",
            code="infinite-value",
        )
    return np.ascontiguousarray(x)


def _first_row(marked: Array) -> int:
    return int(np.flatnonzero(marked.reshape(len(marked), -1).any(axis=1))[0])


def number_classes(y: Array, class_names: Sequence[str] | None, what: str) -> tuple[Indices, tuple[str, ...]]:
    """Class numbers and names. With `class_names`, integers are class numbers already; otherwise the classes are the
    different labels, whole numbers in numerical and words in alphabetical order."""
    if y.ndim != 1 or y.dtype.kind not in "buiUf":
        raise DataError(
            f"{what}: y has shape {y.shape} and type {y.dtype}; it must be one whole number or word per row",
            code="wrong-label-array",
        )
    y = whole_numbers(y, what)
    if len(y) == 0:
        raise DataError(f"{what}: y is empty; a data set needs rows", code="empty-array")
    if class_names is None:
        found, codes = np.unique(y, return_inverse=True)
        return codes.astype(np.int64), tuple(str(label) for label in found.tolist())
    names = tuple(str(name) for name in class_names)
    if y.dtype.kind == "U":
        return _number_words(y, names, what), names
    numbers = y.astype(np.int64)
    if numbers.min() < 0 or numbers.max() >= len(names):
        wrong = int(numbers.min() if numbers.min() < 0 else numbers.max())
        raise DataError(
            f"{what}: y holds {wrong}, but with {len(names)} class names labels run from 0 to {len(names) - 1}",
            code="label-out-of-range",
        )
    return numbers, names


def whole_numbers(y: Array, what: str) -> Array:
    """Labels that are floats as integers; all others as they are."""
    if y.dtype.kind != "f":
        return y
    if not np.isfinite(y).all() or not (y == np.floor(y)).all():
        raise DataError(
            f"{what}: y holds numbers that are not whole; a class is a whole number or a word",
            code="labels-not-whole",
        )
    return y.astype(np.int64)


def _number_words(y: Array, names: tuple[str, ...], what: str) -> Indices:
    number = {name: code for code, name in enumerate(names)}
    found, inverse = np.unique(y, return_inverse=True)
    for word in found.tolist():
        if word not in number:
            raise DataError(
                f"{what}: label '{word}' is not among the {len(names)} class names; add it or correct it",
                code="unknown-class",
            )
    return np.array([number[word] for word in found.tolist()], dtype=np.int64)[inverse]
