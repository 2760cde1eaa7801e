"""One site's data, prepared where it is: the same rows, split and scale as where all sites' files are in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from atoll.core.messages import PARTS
from atoll.data import DataSettings, load
from atoll.data.files.agreement import agree, check_form
from atoll.data.files.site import describe, find_files, prepare
from atoll.data.preprocess import pooled, scaling_of
from atoll.data.settings import SITES
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused

SEED = 4


def same_as_together(together: Path, places: dict[str, Path], **settings: Any) -> None:
    """Every part of every client, the schema, and the scaling, to the bit."""
    whole = load(DataSettings(folder=str(together), **settings), SEED)
    own = DataSettings(name=SITES, **settings)
    form, unfit = agree({name: describe(place, own) for name, place in places.items()})
    assert unfit == {} and whole.names == sorted(places)
    prepared = {name: prepare(places[name], form, own, name, SEED) for name in sorted(places)}
    found = [one.moments() for one in prepared.values()]
    nothing = np.zeros((0, 0), np.float32)
    mean = deviation = nothing
    if found[0] is not None:
        scaling = scaling_of([pooled(moments for moments in found if moments is not None)], False)
        mean, deviation = scaling.mean, scaling.deviation
        assert np.array_equal(mean, whole.holdings.scaling.mean)
    for name, one in prepared.items():
        site = one.scaled(mean, deviation)
        assert site.schema == whole.schema
        for part in PARTS:
            for mine, theirs in zip(site.client(name).part(part), whole.client(name).part(part), strict=True):
                assert mine.dtype == theirs.dtype and np.array_equal(mine, theirs)


def test_archives(tmp_path: Path) -> None:
    rng, places = stream(1, "npz"), {}
    for number, name in enumerate(("b", "a", "c")):
        arrays = {"x": rng.normal(number, 2, (20, 5)), "y": np.arange(20) % 3 + number}
        (tmp_path / name).mkdir()
        (tmp_path / "together").mkdir(exist_ok=True)
        for path in (tmp_path / "together" / f"{name}.npz", tmp_path / name / "rows.npz"):
            np.savez(path, **arrays)
        places[name] = tmp_path / name
    same_as_together(tmp_path / "together", places)
    same_as_together(tmp_path / "together", places, scale="client")


@pytest.mark.parametrize("grey", [(True, True), (True, False)])
def test_pictures(tmp_path: Path, grey: tuple[bool, bool]) -> None:
    """A site with grey pictures beside one with colours sees three channels, as in one folder."""
    rng, places = stream(1, "png"), {}
    for name, plain in zip(("one", "two"), grey, strict=True):
        for number in range(12):
            kind = ("10", "9", "cat") if plain else ("cat", "9", "9")
            folder = tmp_path / "together" / name / kind[number % 3]
            folder.mkdir(parents=True, exist_ok=True)
            pixels = rng.integers(0, 255, (4, 6) if plain else (4, 6, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
        places[name] = tmp_path / "together" / name
    same_as_together(tmp_path / "together", places)


def test_a_site_is_one_client(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("x,label\n1,0\n2,1\n")
    with refused(DataError, "several-site-files", tmp_path):
        find_files(tmp_path)
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    with refused(DataError, "no-data-files", nothing):
        find_files(nothing)


def told(**changes: Any) -> dict[str, Any]:
    usual = {"kind": "csv", "features": ["x", "z"], "text": {}, "numbered": True, "labels": [0, 1]}
    return usual | changes


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (told(features=["x"]), "'z'"),
        (told(features=["x", "z", "w"]), "'w'"),
        (told(text={"x": ["m", "f"]}), "'x'"),
        (told(numbered=False, labels=["no", "yes"]), "labels"),
        ({"kind": "pictures", "size": [4, 4], "grey": True, "labels": ["0", "1"]}, "pictures"),
    ],
)
def test_what_differs_is_said(other: dict[str, Any], named: str) -> None:
    form, unfit = agree({"c": told(), "b": other, "a": told(labels=[1, 2])})
    assert list(unfit) == ["b"] and named in unfit["b"]
    assert form["classes"] == ["0", "1", "2"]


def test_pictures_of_another_size() -> None:
    size = {"kind": "pictures", "grey": True, "labels": ["0", "1"]}
    _, unfit = agree({"a": {**size, "size": [8, 8]}, "b": {**size, "size": [8, 9]}, "c": {**size, "size": [8, 8]}})
    assert list(unfit) == ["b"] and all(named in unfit["b"] for named in ("8x9", "'a'", "8x8"))


def test_one_class_in_all() -> None:
    with refused(DataError, "single-class", "'0'"):
        agree({"a": told(labels=[0]), "b": told(labels=[0])})


@pytest.mark.parametrize(
    "rubbish",
    [
        None,
        {},
        [1],
        {"kind": "csv"},
        {"kind": ["csv"]},
        told(labels="no"),
        told(labels=[{}]),
        told(labels=[0, "a"]),
        told(labels=["a"]),
        told(labels=[float("nan")]),
        told(numbered=False),
        told(features=None),
        told(features=[1, 2]),
        told(features="xz"),
        told(text={"x": 3}),
    ],
)
def test_a_strangers_word_is_checked(rubbish: Any) -> None:
    with refused(DataError, "invalid-description"):
        check_form(rubbish)


def test_a_good_description_is_let_through() -> None:
    check_form(told(text={"x": ["a"]}))
    names: dict[str, Any] = {"features": None, "classes": None, "numbered": True, "labels": [1]}
    check_form({"kind": "npz", "shape": [3], "dtype": "", **names})
