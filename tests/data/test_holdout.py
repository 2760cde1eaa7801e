"""Rows that no client trains on: a test folder, and whole clients that are held out. Nothing is learned from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll import search
from atoll.data import DataSettings, Federated, load
from atoll.data.federated import histogram
from atoll.errors import ConfigError, DataError
from refusals import refused

NORTH = "x,c,day,label\n1,a,2024-01-11,0\n3,b,2024-01-12,1\n,a,2024-01-13,1\n"
SOUTH = "x,c,day,label\n5,a,2024-01-14,0\n7,b,2024-01-15,1\n"
ODD = "x,c,day,label\n1000,z,2023-01-01,1\n,a,2024-01-11,0\n"  # another range, word and first day
SETTINGS: dict[str, Any] = {
    "split": [1.0, 0, 0],
    "blocks": "contiguous",
    "missing": "mean",
    "categories": "onehot",
    "dates": {"day": ["days"]},
    "scale": "none",
}


def put(folder: Path, **files: str) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text, encoding="utf-8")
    return folder


def take(folder: Path, seed: int = 0, **values: Any) -> Federated:
    return load(DataSettings.model_validate({"folder": str(folder), **SETTINGS, **values}), seed)


def test_nothing_is_learned_from_a_client_that_is_held_out(tmp_path: Path) -> None:
    """Words, first day, fill values and scaling are those of the others; its own gap gets their mean, by rows."""
    both = put(tmp_path / "both", north=NORTH, south=SOUTH)
    all_three = put(tmp_path / "three", north=NORTH, south=SOUTH, west=ODD)
    for scale in ("none", "federated"):
        found = take(all_three, holdout_clients=["west"], scale=scale)
        alone = take(both, scale=scale)
        assert found.names == ["north", "south"] and found.held_out == ["west"]
        assert found.preparation == alone.preparation
        for name in found.names:
            assert np.array_equal(found.client(name).part("train")[0], alone.client(name).part("train")[0])
    x, y = take(all_three, holdout_clients=["west"]).client("west").part("test")
    filled = (2 * 3 + 6 * 2) / 5  # north has 2 on average and three rows, south 6 and two
    assert x.tolist() == [[1000, 0, 0, -375], pytest.approx([filled, 1, 0, 0])] and y.tolist() == [1, 0]
    assert found.sizes("west") == {"train": 0, "validation": 0, "test": 2}
    assert histogram(found).sum() == 5 and histogram(found, held_out=True).tolist() == [[1, 1]]
    assert "1 clients held out" in repr(found)


def test_the_same_holds_for_one_file_and_for_data_frames(tmp_path: Path) -> None:
    lines = [(name, text.splitlines()) for name, text in (("north", NORTH), ("south", SOUTH), ("west", ODD))]
    together = "".join(f"{name},{line}\n" for name, every in lines for line in every[1:])
    (tmp_path / "all.csv").write_text("who,x,c,day,label\n" + together)
    found = take(tmp_path / "all.csv", client_column="who", holdout_clients=["west"])
    put(tmp_path / "two", north=NORTH, south=SOUTH)
    alone = take(tmp_path / "two")
    assert found.preparation.columns == alone.preparation.columns and found.held_out == ["west"]
    cells = [line.split(",") for line in together.splitlines()]
    frame = {name: [row[place] for row in cells] for place, name in enumerate(["who", "x", "c", "day", "label"])}
    framed = Federated.from_dataframe(frame, client="who", holdout_clients=["west"], seed=0, **SETTINGS)
    assert framed.digest() == found.digest()


def test_a_share_of_the_clients_is_held_out_by_the_seed(tmp_path: Path) -> None:
    settings = DataSettings.model_validate({"name": "wine", "clients": 10, "holdout_clients": 0.2})
    found = load(settings, 1)
    assert len(found.held_out) == 2 and len(found.names) == 8 and set(found.held_out).isdisjoint(found.names)
    assert load(settings, 1).held_out == found.held_out
    assert len({tuple(load(settings, seed).held_out) for seed in range(5)}) > 1
    whole = load(settings.model_copy(update={"holdout_clients": None}), 1)
    for name in found.held_out:  # the same rows as without, all of them for testing
        assert found.sizes(name)["test"] == sum(whole.sizes(name).values())
    by_name = load(settings.model_copy(update={"holdout_clients": tuple(found.held_out)}), 1)
    assert by_name.digest() == found.digest()


def test_classes_that_only_test_rows_have_are_refused_by_name(tmp_path: Path) -> None:
    put(tmp_path / "data", north=NORTH, south=SOUTH, west=ODD.replace(",1\n", ",7\n"))
    with refused(DataError, "untrained-class", "'7'", "'west'", "data.holdout_clients"):
        take(tmp_path / "data", holdout_clients=["west"])
    with refused(DataError, "untrained-class", "'7'", "west.csv", "data.test"):
        take(put(tmp_path / "two", north=NORTH, south=SOUTH), test=str(tmp_path / "data" / "west.csv"))
    with refused(DataError, "untrained-class", "data.holdout_clients"):
        load(DataSettings(name="digits", clients=10, partition="classes:1", holdout_clients=("client-003",)), 0)


def test_a_word_that_only_test_rows_have(tmp_path: Path) -> None:
    """One-hot, it is no word at all. As a code it is a missing value, if the others have one; else it is refused."""
    put(tmp_path, north=NORTH, south=SOUTH, west=ODD)
    with refused(DataError, "unknown-category", "west.csv' line 2", "'z'", "'c'"):
        take(tmp_path, categories="code", holdout_clients=["west"])
    put(tmp_path, south=SOUTH.replace("7,b", "7,"))
    x, _ = take(tmp_path, categories="code", holdout_clients=["west"]).client("west").part("test")
    assert x[:, 1].tolist() == [0, 1]  # (missing), a


def test_rows_of_a_test_folder(tmp_path: Path) -> None:
    clients = put(tmp_path / "clients", north=NORTH, south=SOUTH)
    test = put(tmp_path / "test", later=ODD, more=ODD)
    found = take(clients, test=str(test))
    assert found.names == ["north", "south"] and found.benchmark == ["benchmark-00"]
    assert found.preparation == take(clients).preparation
    x, y = found.client("benchmark-00").part("test")
    assert len(y) == 4 and x[0].tolist() == [1000, 0, 0, -375]
    framed = take(clients, test=str(test / "later.csv"))
    assert framed.sizes("benchmark-00")["test"] == 2


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("x,c,label\n1,a,0\n", "columns-differ", ["'day'"]),
        (ODD.replace("1000", "high"), "column-kinds-differ", ["'x'"]),
        (ODD.replace("x,", "x,y,", 1).replace("\n", "\n1,", 2), "columns-differ", ["'y'"]),
        ("x,c,day,label\n1,a,2024-01-01,\n", "label-missing", ["line 2"]),
        ("", "empty-file", []),
        ("x,c,day,label\n", "too-few-rows", []),
    ],
)
def test_test_rows_of_another_form(tmp_path: Path, text: str, code: str, named: list[str]) -> None:
    clients = put(tmp_path / "clients", north=NORTH, south=SOUTH)
    test = put(tmp_path / "test", later=text)
    with refused(DataError, code, "data.test", *named):
        take(clients, test=str(test))


def test_what_cannot_be_held_out(tmp_path: Path) -> None:
    put(tmp_path, north=NORTH, south=SOUTH)
    with refused(DataError, "unknown-client", "'nroth'", "'north'"):
        take(tmp_path, holdout_clients=["nroth"])
    with refused(DataError, "no-client-named", "2 of 2"):
        take(tmp_path, holdout_clients=["north", "south"])
    with refused(DataError, "no-such-data-folder", "data.test", "nowhere"):
        take(tmp_path, test=str(tmp_path / "nowhere"))
    with refused(ConfigError, "inapplicable-setting", "data.test"):
        DataSettings(name="wine", test="more")
    for setting in ("exclude", "holdout_clients"):
        with refused(ConfigError, "inapplicable-setting", f"data.{setting}"):
            DataSettings.model_validate({"name": "sites", setting: ["north"]})


def test_clients_that_are_left_out(tmp_path: Path) -> None:
    """Their files may be anything. The same setting leaves out clients of one file, and of a data set."""
    put(tmp_path / "data", north=NORTH, south=SOUTH, west="nothing")
    with refused(DataError, "label-column-missing", "west.csv"):
        take(tmp_path / "data")
    assert take(tmp_path / "data", exclude=["west"]).names == ["north", "south"]
    with refused(DataError, "unknown-client", "'wets'", "'west'"):
        take(tmp_path / "data", exclude=["wets"])
    (tmp_path / "all.csv").write_text("who,x,label\na,1,0\na,2,1\nb,?,0\nb,4,1\nc,5,1\n")
    found = take(tmp_path / "all.csv", client_column="who", exclude=["b", "c"], missing="refuse", dates=None)
    assert found.names == ["a"]
    with refused(DataError, "too-few-rows", "'c'"):
        take(tmp_path / "all.csv", client_column="who", dates=None)
    with refused(DataError, "unknown-client", "'d'"):
        take(tmp_path / "all.csv", client_column="who", exclude=["d"], dates=None)
    with refused(DataError, "no-natural-clients", "data.exclude"):
        load(DataSettings(name="wine", exclude=("client-001",)), 0)


def test_a_result_has_a_row_of_its_own_for_clients_held_out_and_for_test_rows(tmp_path: Path) -> None:
    data = {"name": "wine", "clients": 5, "holdout_clients": ["client-001", "client-004"]}
    found = search("fedavg", data, out=tmp_path / "run", rounds=1, workers=0).result["candidates"][0]
    assert set(found["held_out"]["clients"]) == {"client-001", "client-004"}
    rows = [one["test_rows"] for one in found["held_out"]["clients"].values()]
    assert found["held_out"]["test_rows"] == sum(rows) >= 70 and "client-001" not in found["clients"]
    put(tmp_path / "data", north=NORTH, south=SOUTH)
    put(tmp_path / "test", later=ODD)
    own = {"folder": str(tmp_path / "data"), "test": str(tmp_path / "test"), **SETTINGS}
    found = search("fedavg", own, out=tmp_path / "own", rounds=1, workers=0).result["candidates"][0]
    assert found["test"]["test_rows"] == 2 and "held_out" not in found
