"""CelebA partitioned by identity, as in LEAF: a client is a person with at least five images.

`celeba` reads the published files: img_align_celeba/*.jpg, list_attr_celeba.txt and identity_CelebA.txt. A class is
a combination of attributes: Smiling, Male and Mouth_Slightly_Open give the eight of the federated NetAdapt paper
(9,343 clients, 200,288 images). `celeba_leaf` reads the files of LEAF's own scripts (all_data/*.json, or train/*.json
and test/*.json, with users, user_data, x and y) with their clients and labels; a client's train and test rows are
joined and split by the settings. Images are stretched to a square, as in LEAF.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from atoll.data.image_files import ImageFiles, first_place
from atoll.data.naming import group_by_id
from atoll.data.source import Dataset, Source
from atoll.errors import DataError, nearest

FOLDER, ATTRIBUTES, IDENTITIES = "img_align_celeba", "list_attr_celeba.txt", "identity_CelebA.txt"
CHOSEN = ("Smiling", "Male", "Mouth_Slightly_Open")
LEAST = 5  # images of a person
SIZE = 128
PLACES = ("", "celeba", "celeba/raw", "raw", "celeba/data/raw", "data/raw")


def present(folder: Path) -> bool:
    return first_place(folder, PLACES, _is_raw) is not None


def leaf_present(folder: Path) -> bool:
    return bool(_json_files(folder)) and first_place(folder, PLACES, _has_images) is not None


def read(folder: Path | None, size: int | None = None, attributes: Sequence[str] | None = None) -> Source:
    """All images of people with at least LEAST of them."""
    root = _root(folder)
    chosen = tuple(CHOSEN if attributes is None else attributes)
    codes = _classes_of(root / ATTRIBUTES, chosen)
    owners = _identities(root / IDENTITIES)
    for name in codes:
        if name not in owners:
            raise DataError(
                f"'{root / IDENTITIES}' has no identity for {name}; put the original file there",
                code="picture-without-identity",
            )
    people = np.array([owners[name] for name in codes], dtype=np.int64)
    _, where, counts = np.unique(people, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(counts[where] >= LEAST)
    if not len(kept):
        raise DataError(
            f"'{root / IDENTITIES}': no person has {LEAST} images; put the original file there", code="too-few-pictures"
        )
    names, labels = list(codes), np.array(list(codes.values()), dtype=np.int64)
    return _source(root, [names[row] for row in kept.tolist()], labels[kept], people[kept], combinations(chosen), size)


def read_leaf(folder: Path | None, size: int | None = None, attributes: Sequence[str] | None = None) -> Source:
    """The images that LEAF's files list, with their labels."""
    if attributes is not None:
        raise DataError(
            "data.attributes: LEAF's files contain the labels; leave it out, or use data set 'celeba'",
            code="inapplicable-setting",
        )
    if folder is None:
        raise DataError(
            "data set 'celeba_leaf' needs files: name their folder with --data-dir or ATOLL_DATA",
            code="no-data-folder",
        )
    files, root = _json_files(folder), first_place(folder, PLACES, _has_images)
    if not files or root is None:
        missing = "all_data/*.json or train/*.json" if not files else f"the images in {FOLDER}/"
        raise DataError(
            f"data set 'celeba_leaf' is not in '{folder}': {missing} are missing; put LEAF's folder there",
            code="dataset-files-missing",
        )
    names, labels, people = [], [], []
    for path in files:
        for user, row, label in _leaf_rows(path):
            people.append(user)
            names.append(row)
            labels.append(label)
    codes = np.array(labels, dtype=np.int64)
    classes = tuple(str(number) for number in range(max(2, int(codes.max(initial=0)) + 1)))
    owners = np.array(people, dtype=np.str_)
    if len(owners) and all(user.isdecimal() and len(user) < 18 for user in people):
        owners = owners.astype(np.int64)
    return _source(root, names, codes, owners, classes, size)


def combinations(attributes: Sequence[str]) -> tuple[str, ...]:
    """The name of each class: the attributes that are true. The first attribute is the highest bit."""
    found = []
    for number in range(2 ** len(attributes)):
        held = [name for place, name in enumerate(reversed(attributes)) if number >> place & 1]
        found.append("+".join(reversed(held)) or "none")
    return tuple(found)


def _source(
    root: Path, names: list[str], labels: Any, people: Any, classes: tuple[str, ...], size: int | None
) -> Source:
    groups, clients = group_by_id(people, "person")
    side = SIZE if size is None else size
    images = ImageFiles(root / FOLDER, tuple(names), side, "stretch")
    return Source(np.arange(len(names)), labels, images.preparation(classes), groups, tuple(clients), images=images)


def _root(folder: Path | None) -> Path:
    needed = f"{FOLDER}/, {ATTRIBUTES} and {IDENTITIES}"
    if folder is None:
        raise DataError(
            f"data set 'celeba' needs {needed}: name their folder with --data-dir or ATOLL_DATA",
            code="no-data-folder",
        )
    root = first_place(folder, PLACES, _is_raw)
    if root is not None:
        return root
    near = first_place(folder, PLACES, _has_images)
    if near is not None:
        missing = " and ".join(name for name in (ATTRIBUTES, IDENTITIES) if not (near / name).is_file())
        raise DataError(
            f"'{near}' has CelebA's images but not {missing}; put the published file beside them",
            code="dataset-files-missing",
        )
    raise DataError(
        f"data set 'celeba' is not in '{folder}': put {needed} there or into a sub-folder 'celeba'",
        code="dataset-files-missing",
    )


def _is_raw(place: Path) -> bool:
    return _has_images(place) and all((place / name).is_file() for name in (ATTRIBUTES, IDENTITIES))


def _has_images(place: Path) -> bool:
    return (place / FOLDER).is_dir()


def _classes_of(path: Path, chosen: tuple[str, ...]) -> dict[str, int]:
    """Image -> class. The file has the number of images, the attributes' names, then a name and 1 or -1 for each."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    known = lines[1].split() if len(lines) > 2 else []
    if not known:
        raise DataError(f"'{path}' holds no attributes; put the published file there", code="no-attributes")
    if not chosen or len(set(chosen)) != len(chosen):
        raise DataError(
            f"data.attributes = {list(chosen)}: name one or more different attributes, such as Smiling",
            code="invalid-attributes",
        )
    for name in chosen:
        if name not in known:
            raise DataError(
                f"data.attributes: unknown attribute '{name}'; {nearest(name, known)}", code="unknown-attribute"
            )
    places = [known.index(name) + 1 for name in chosen]
    codes: dict[str, int] = {}
    for number, line in enumerate(lines[2:], start=3):
        words = line.split()
        if not words:
            continue
        if len(words) != len(known) + 1 or any(words[place] not in ("1", "-1") for place in places):
            raise DataError(
                f"'{path}' line {number} is not an image name and {len(known)} values of 1 or -1; correct it",
                code="malformed-line",
            )
        code = 0
        for place in places:
            code = 2 * code + (words[place] == "1")
        codes[words[0]] = code
    return codes


def _identities(path: Path) -> dict[str, int]:
    owners: dict[str, int] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        words = line.split()
        if not words:
            continue
        if len(words) != 2 or not words[1].isdecimal():
            raise DataError(
                f"'{path}' line {number} is not an image name and a person's number; correct it", code="malformed-line"
            )
        owners[words[0]] = int(words[1])
    return owners


def _json_files(folder: Path) -> list[Path]:
    for place in ("celeba", "celeba/data", "data", ""):
        for parts in (("train", "test"), ("all_data",)):
            found = [path for part in parts for path in sorted((folder / place / part).glob("*.json"))]
            if found:
                return found
    return []


def _leaf_rows(path: Path) -> list[tuple[str, str, int]]:
    """(user, image, label) of every row."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        rows = []
        for user in table["users"]:
            held = table["user_data"][user]
            rows += [(str(user), str(x), int(y)) for x, y in zip(held["x"], held["y"], strict=True)]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        reason = f"no {problem}" if isinstance(problem, KeyError) else problem
        raise DataError(
            f"'{path}' is not a LEAF file ({reason}); write it again with LEAF's scripts", code="file-damaged"
        ) from None
    wrong = next((row for row in rows if row[2] < 0 or "/" in row[1] or ".." in row[1]), None)
    if wrong is not None:
        raise DataError(
            f"'{path}': {wrong[1]!r} with label {wrong[2]} of user {wrong[0]!r} is not an image with a class",
            code="malformed-entry",
        )
    return rows


_TAKES = ("size", "attributes")
_ORIGIN = "Liu et al. 2015, 9,343 people (LEAF)"
CELEBA = Dataset("image", "200,288", 8, _ORIGIN, read, _TAKES, present)
CELEBA_LEAF = Dataset("image", "by files", 2, "the same, from LEAF's files", read_leaf, _TAKES, leaf_present)
