"""One site's data: the same rows, split and scaling as with the files of all sites in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from atoll.core.messages import PARTS
from atoll.data import DataSettings, load
from atoll.data.files.agreement import DataDescription, agree, differences, parse_description
from atoll.data.files.site import describe, open_site, prepare
from atoll.data.preprocess import combined, scaling_of
from atoll.data.settings import SITES
from atoll.errors import DataError
from atoll.rng import stream
from refusals import refused

SEED = 4
OWN = DataSettings(name=SITES)


def same_as_together(together: Path, places: dict[str, Path], **settings: Any) -> None:
    """Every part of every client, the schema, and the scaling, to the bit."""
    whole = load(DataSettings(folder=str(together), **settings), SEED)
    own = DataSettings(name=SITES, **settings)
    agreement = agree({name: describe(places[name], own) for name in sorted(places)}, own)
    assert whole.names == sorted(places)
    prepared = {name: prepare(places[name], agreement, own, name, SEED) for name in sorted(places)}
    found = [one.moments() for one in prepared.values()]
    nothing = np.zeros((0, 0), np.float32)
    mean = deviation = nothing
    if found[0] is not None:
        scaling = scaling_of([combined(moments for moments in found if moments is not None)], False)
        mean, deviation = scaling.mean, scaling.deviation
        assert np.array_equal(mean, whole.client_rows.scaling.mean)
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
def test_images(tmp_path: Path, grey: tuple[bool, bool]) -> None:
    """A site with grey images has three channels if another has colour images, as in one folder."""
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
        open_site(tmp_path, OWN)
    nothing = tmp_path / "nothing"
    nothing.mkdir()
    with refused(DataError, "no-data-files", nothing):
        open_site(nothing, OWN)


def table(**changes: Any) -> dict[str, Any]:
    return {"kind": "table", "features": ["x", "z"], "text": {}, "labels": [0, 1]} | changes


def images(*size: int) -> dict[str, Any]:
    return {"kind": "images", "shape": size, "grey": True, "labels": ["0", "1"]}


@pytest.mark.parametrize(
    ("other", "code", "named"),
    [
        (table(features=["x"]), "columns-differ", "'z'"),
        (table(features=["x", "z", "w"]), "columns-differ", "'w'"),
        (table(text={"x": ["m", "f"]}), "column-kinds-differ", "'x'"),
        (table(labels=["no", "yes"]), "label-kinds-differ", "labels"),
        (images(4, 4), "mixed-file-kinds", "images"),
    ],
)
def test_a_site_that_differs_from_most(other: dict[str, Any], code: str, named: str) -> None:
    sites = {"a": table(labels=[1, 2]), "b": other, "c": table()}
    described = {name: DataDescription.model_validate(site) for name, site in sites.items()}
    found = differences(described)
    assert list(found) == ["b"] and found["b"].code == code and named in str(found["b"])
    with refused(DataError, code, "site 'b'", "site 'a'", named):
        agree(described, OWN)
    assert agree({name: described[name] for name in ("a", "c")}, OWN).classes == ["0", "1", "2"]


def test_images_of_another_size() -> None:
    sites = {"a": images(8, 8), "b": images(8, 9), "c": images(8, 8)}
    found = differences({name: DataDescription.model_validate(site) for name, site in sites.items()})
    assert list(found) == ["b"] and all(named in str(found["b"]) for named in ("8x9", "'a'", "8x8"))


def test_names_given_with_the_data() -> None:
    """Numbers are numbers of the given classes; other names, or none, do not fit."""
    archive = {"kind": "npz", "shape": [3], "labels": [0, 1], "classes": ["no", "yes"]}
    first = DataDescription.model_validate(archive)
    for classes in (["yes", "no"], None):
        other = DataDescription.model_validate(archive | {"classes": classes})
        with refused(DataError, "names-differ", "site 'b'", "site 'a'"):
            agree({"a": first, "b": other}, OWN)
    assert agree({"a": first}, OWN.model_copy(update={"classes": ("no", "yes")})).classes == ["no", "yes"]
    with refused(DataError, "unknown-class", "site 'a'", "'yes'"):
        agree({"a": first}, OWN.model_copy(update={"classes": ("no",)}))


def test_one_class_in_all() -> None:
    one = DataDescription.model_validate(table(labels=[0]))
    with refused(DataError, "single-class", "'0'"):
        agree({"a": one, "b": one}, OWN)


@pytest.mark.parametrize(
    "rubbish",
    [
        None,
        {},
        [1],
        {"kind": "table"},
        {"kind": ["csv"]},
        table(labels="no"),
        table(labels=[]),
        table(labels=[{}]),
        table(labels=[0, "a"]),
        table(labels=[float("nan")]),
        table(features=None),
        table(features=[1, 2]),
        table(features="xz"),
        table(text={"x": 3}),
        table(text={"w": ["a"]}),
        table(text={"x": ["\ud800"]}),
        table(more=1),
        images(8),
        images(8, 8) | {"labels": [0, 1]},
    ],
)
def test_an_invalid_description_is_refused(rubbish: Any) -> None:
    with refused(DataError, "invalid-description"):
        parse_description(rubbish)


def test_a_valid_description_is_accepted() -> None:
    parse_description(table(text={"x": ["a"]}))
    parse_description({"kind": "npz", "shape": [3], "dtype": "", "features": None, "classes": None, "labels": [1]})


def test_labels_of_a_site_are_those_of_a_folder(tmp_path: Path) -> None:
    """Truth values and floats as labels, and floats that are not whole."""
    for labels in (np.array([False, True] * 4), np.array([1.0, 7.0] * 4)):
        np.savez(tmp_path / "a.npz", x=np.arange(16).reshape(8, 2), y=labels)
        same_as_together(tmp_path, {"a": tmp_path / "a.npz"})
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 2)), y=np.array([0.5, 1.0]))
    for settings in (DataSettings(folder=str(tmp_path)), DataSettings(name=SITES)):
        with refused(DataError, "labels-not-whole", tmp_path):
            load(settings, SEED) if settings.folder else describe(tmp_path / "a.npz", settings)
