"""`atoll retrain` for networks of found cells: other data, another size, in one place, and how they are drawn."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.api import retrain, search
from atoll.errors import ArchitectureError, ConfigError, DataError
from atoll.report.figures.catalogue import draw_figures
from atoll.run.reader import Run, load
from atoll.run.retrain import assemble_retraining
from atoll.spaces.darts import space as darts
from atoll.testing import made_images
from programs import loaded, run  # noqa: F401 (a fixture)
from refusals import refused

pytestmark = pytest.mark.usefixtures("loaded")

GENOTYPE = darts.random_genotype(np.random.default_rng(8))
BEST: dict[str, Any] = {"space": "darts", "form": "genotype", "channels": 2, "cells": 2, "genotype": GENOTYPE}
QUICK: dict[str, Any] = {"rounds": 1, "epochs": 1, "batch": 16, "lr": 0.05, "fraction": 0.5}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run that has a network of found cells, and one that is none."""
    data = {"name": "digits", "clients": 2, "rows": 120}
    networks = {"best": BEST, "other": {"space": "fixed", "model": "mlp", "hidden": [4]}}
    folder = tmp_path_factory.mktemp("found") / "run"
    return search("retrain", data, out=folder, workers=0, seed=3, networks=networks, clip=5.0, crop=1, **QUICK)


def test_found_cells_are_trained_on_other_data(found: Run, tmp_path: Path) -> None:
    """Two folders of colour pictures instead of digits: input and classes are the new data's, the cells stay."""
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    rng = np.random.default_rng(0)
    for client in ("here", "there"):
        x = rng.random((24, 3, 6, 7), dtype=np.float32)
        np.savez(pictures / f"{client}.npz", x=x, y=np.arange(24) % 4)
    path = tmp_path / "moved"
    options = ("--data", pictures, "--workers", 0)
    ended = run("retrain", found.path, "--pick", "best", *options, "--rounds", 1, "--quiet", "--out", path)
    assert ended.code == 0, ended
    moved = load(path).load_model("best")
    assert moved.architecture == {**BEST, "input": [3, 6, 7], "classes": 4}
    assert moved.weights["head.0.weight"].shape == (4, 32)


def test_another_depth_and_width_in_one_place(found: Run, tmp_path: Path) -> None:
    path = tmp_path / "central"
    options = ("--central", "--cells", 3, "--channels", 4, "--rounds", 2, "--workers", 0, "--quiet", "--out", path)
    changes = ("--set", "retrain_central.schedule=cosine", "--set", "retrain_central.flip=0.5")
    ended = run("retrain", found.path, "--pick", "best", *options, *changes)
    assert ended.code == 0, ended
    central = load(path)
    architecture = central.load_model("best").architecture
    assert (architecture["cells"], architecture["channels"]) == (3, 4) and architecture["genotype"] == GENOTYPE
    assert central.manifest["method"] == "retrain_central" and central.manifest["data"]["clients"] == 1
    settings = tomllib.loads((path / "config.toml").read_text())["retrain_central"]
    inherited = {"epochs": 1, "batch": 16, "lr": 0.05, "clip": 5.0, "crop": 1}
    assert {name: settings[name] for name in inherited} == inherited
    assert (settings["schedule"], settings["flip"]) == ("cosine", 0.5)
    assert central.model("best") is not None


def test_only_found_cells_have_another_size(found: Run) -> None:
    with refused(ConfigError, "inapplicable-setting", "--cells 20", "'other'"):
        assemble_retraining(found, ["best", "other"], {"cells": 20})
    raw = assemble_retraining(found, ["best", "cnn"], {"cells": 20, "channels": 36, "rounds": 4})
    assert raw["retrain"]["networks"]["cnn"] == {"space": "fixed", "model": "cnn"}  # made by hand: as it is
    assert raw["retrain"]["networks"]["best"] == {**found.load_model("best").architecture, "cells": 20, "channels": 36}
    assert raw["retrain"]["rounds"] == 4 and "central" not in raw and "cells" not in raw


def test_a_method_that_retrains_in_its_own_way_hands_that_on(found: Run, tmp_path: Path) -> None:
    """Its own learning rate for found networks holds for federated training, that of its search for central one."""
    text = (found.path / "config.toml").read_text()
    own = text.replace("[retrain]", "[retrain]\nretrain_lr = 0.1\nretrain_momentum = 0.5").replace(
        "\nepochs = 1\n", "\nepochs = 0\n"
    )
    assert own.count("epochs = 0") == 1
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "config.toml").write_text(own)
    for name in ("result.json", "manifest.json"):
        (copy / name).write_bytes((found.path / name).read_bytes())
    (copy / "models").symlink_to(found.path / "models")
    federated = assemble_retraining(load(copy), ["best"], {})["retrain"]
    central = assemble_retraining(load(copy), ["best"], {"central": True})["retrain_central"]
    assert federated.keys() - {"networks"} == {"fraction", "batch", "lr", "momentum"}
    assert (federated["lr"], federated["momentum"], federated["batch"]) == (0.1, 0.5, 16)
    assert (central["lr"], central["clip"], central["fraction"]) == (0.05, 5.0, 0.5) and "epochs" not in central


def test_the_same_in_python(found: Run, tmp_path: Path) -> None:
    other = made_images(clients=2, side=5, channels=3, classes=3)
    again = retrain(found.path, "best", out=tmp_path / "p", rounds=1, workers=0, data=other, cells=1, lr=0.01)
    assert again.load_model("best").architecture == {**BEST, "cells": 1, "input": [3, 5, 5], "classes": 3}


def test_data_of_every_kind_in_python(found: Run, tmp_path: Path) -> None:
    """As `search` takes it; what is no data is said, and never taken for the run's own."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    for client in ("here", "there"):
        np.savez(folder / f"{client}.npz", x=np.zeros((24, 6, 7), np.float32), y=np.arange(24) % 4)
    options: dict[str, Any] = {"rounds": 1, "workers": 0}
    moved = retrain(found.path, ["best"], out=tmp_path / "path", data=folder, **options)
    assert moved.load_model("best").architecture["input"] == [1, 6, 7]
    table = {"name": "digits", "rows": 90}
    tables = {"simulation": {"bandwidth": 1e6}}
    fewer = retrain(found.path, "best", out=tmp_path / "table", data=table, clients=3, settings=tables, **options)
    settings = tomllib.loads((fewer.path / "config.toml").read_text())
    assert (settings["data"]["rows"], settings["data"]["clients"]) == (90, 3)
    assert fewer.rounds[0]["ledger"]["simulated_seconds"] > 0
    wrong: Any = 42
    with pytest.raises(ConfigError, match="data = 42"):
        retrain(found.path, "best", out=tmp_path / "wrong", data=wrong, **options)
    with refused(DataError, "unknown-dataset", tmp_path / "nowhere"):
        retrain(found.path, "best", out=tmp_path / "wrong", data=tmp_path / "nowhere", **options)


def test_networks_that_no_machine_holds_are_refused_before_anything_is_written(found: Run, tmp_path: Path) -> None:
    with pytest.raises(ArchitectureError, match=r"networks\.best"):
        retrain(found.path, "best", out=tmp_path / "p", rounds=1, workers=0, channels=200_000)
    assert not (tmp_path / "p").exists()


def test_groups_need_clients_who_train(found: Run) -> None:
    with refused(ConfigError, "conflicting-settings", "--groups 2", "--central"):
        assemble_retraining(found, ["best"], {"central": True, "retrain.groups": 2})


def test_what_is_derived_from_a_supernet_has_no_weights_to_go_on_from(tmp_path: Path) -> None:
    small: dict[str, Any] = {"channels": 2, "cells": 1, "batch": 8, "rounds": 2, "warmup": 1, "retrain": 0}
    run = search("fedrl", made_images(clients=2, side=6), out=tmp_path / "run", workers=0, **small)
    with refused(ConfigError, "start-without-weights", "--from found", "'best'"):
        assemble_retraining(run, ["best"], {}, start="found")


def test_images_too_small_for_the_cells(found: Run, tmp_path: Path) -> None:
    small = made_images(clients=2, side=2)
    with pytest.raises(ArchitectureError, match=r"networks\.best.* 2x2"):
        retrain(found.path, "best", out=tmp_path / "p", rounds=1, workers=0, data=small)
    assert not (tmp_path / "p").exists()


def test_the_cells_are_drawn(found: Run, tmp_path: Path) -> None:
    written = {path.name: path for path in draw_figures([found.path], out=tmp_path, file_format="svg")}
    text = written["cells.svg"].read_text()
    lines = [line.strip()[5:-4].strip() for line in text.splitlines() if line.strip().startswith("<!-- ")]
    operations = [word for pairs in GENOTYPE.values() for word, _ in pairs]
    assert sorted(line for line in lines if line in darts.OPERATIONS) == sorted(operations)
    assert sum("2 cells, 2 channels" in line for line in lines) == 1 and "normal cell" in lines
