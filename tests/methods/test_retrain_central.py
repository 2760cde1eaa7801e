"""Given networks trained on all data in one place; augmentation, clipping and the cosine, through the whole method."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from atoll.api import search
from atoll.clients import LocalTraining
from atoll.data import Federated
from atoll.errors import ConfigError
from atoll.methods.fedavg import FedAvgConfig
from atoll.methods.retrain import Retrain, RetrainConfig
from atoll.spaces.darts import space as darts
from atoll.testing import MethodContract, made_images, made_table
from refusals import refused

FOUND: dict[str, Any] = {
    "space": "darts",
    "form": "genotype",
    "channels": 2,
    "cells": 1,
    "genotype": darts.random_genotype(np.random.default_rng(1)),
}


class TestRetrainCentral(MethodContract):
    method = "retrain_central"
    settings: ClassVar[dict[str, Any]] = {
        "rounds": 4,
        "networks": {"found": FOUND},
        "schedule": "cosine",
        "crop": 1,
        "flip": 0.5,
        "cutout": 2,
        "clip": 5.0,
    }

    def data(self) -> Federated:
        return made_images()


def test_the_cosine_goes_from_the_full_rate_to_nothing() -> None:
    settings = LocalTraining(cosine=4, decay=0.5)
    assert [settings.rate(0.2, done) for done in (0, 2, 4, 5)] == pytest.approx([0.2, 0.1, 0.0, 0.0])
    assert settings.rate(1.0, 1) == pytest.approx(0.5 * (1 + math.cos(math.pi / 4)))
    assert LocalTraining(decay=0.5).rate(0.2, 2) == 0.2 * 0.5**2
    schema = made_images().schema
    training = Retrain(RetrainConfig(rounds=7, schedule="cosine"), schema).training
    assert training.cosine == 7 and training.extras == {}


def test_what_is_on_travels_and_changes_the_training(tmp_path: Path) -> None:
    """The same run with each setting off and on; settings that are off leave no byte behind."""

    def figures(name: str, **settings: Any) -> tuple[Any, int]:
        run = search("fedavg", made_images(), out=tmp_path / name, workers=0, rounds=1, model="mlp", **settings)
        weights = run.load_model("high").weights
        return [float(np.abs(weights[name]).sum()) for name in sorted(weights)], run.result["ledger"]["per_round"][0][
            "bytes_down"
        ]

    plain, size = figures("plain")
    assert figures("off", crop=0, flip=0.0, cutout=0) == (plain, size)
    for name, value in (("crop", 1), ("flip", 0.5), ("cutout", 2), ("clip", 0.01)):
        other, larger = figures(name, **{name: value})
        assert other != plain and larger > size


@pytest.mark.parametrize("config", [FedAvgConfig, RetrainConfig])
def test_tables_are_not_augmented(config: type[FedAvgConfig] | type[RetrainConfig]) -> None:
    with refused(ConfigError, "inapplicable-setting", "cutout = 3"):
        config(rounds=1, cutout=3).fitted(made_table().schema, 4)
