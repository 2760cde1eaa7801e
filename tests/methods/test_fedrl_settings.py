"""Settings of `fedrl`: phases, quorum, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.config import resolve
from atoll.core.messages import ClientInfo, Schema
from atoll.errors import ArchitectureError, ConfigError
from atoll.methods.fedrl import FedRLConfig
from refusals import refused

IMAGES = Schema("image", (1, 8, 8), ("a", "b"))
TABLE = Schema("table", (2,), ("a", "b"), ("first", "second"))


def fitted(clients: int = 10, **settings: Any) -> FedRLConfig:
    return FedRLConfig(**{"rounds": 16, **settings}).fitted(IMAGES, clients)


def test_phases_follow_each_other() -> None:
    """16 rounds: a tenth, rounded up, trains what was found; five eighths of the other fourteen warm up."""
    config = fitted()
    assert (config.warmup, config.retrain) == (8, 2)
    assert [config.phase(done) for done in range(16)] == ["warmup"] * 8 + ["search"] * 6 + ["final"] * 2
    bare = fitted(warmup=0, retrain=0)
    assert {bare.phase(done) for done in range(16)} == {"search"}


def test_what_was_set_is_not_altered() -> None:
    config = fitted(warmup=3, retrain=5)
    assert (config.warmup, config.retrain) == (3, 5)


def test_a_phase_is_long_enough_when_its_first_reply_can_be_as_late_as_is_allowed_and_count() -> None:
    """Replies two rounds late: asked in round 1, one counts in round 3, so of three rounds only its asking is sure."""
    assert not fitted(warmup=3, threshold=2).ends("warmup", 3) and fitted(warmup=4, threshold=2).ends("warmup", 4)
    short = fitted(warmup=3, threshold=2, retrain=11)  # 3 + 2 rounds
    assert not short.ends("search", 5) and short.ends("both", 5) and not short.ends("both", 4)


def test_how_late_a_reply_may_be_has_an_end() -> None:
    with pytest.raises(ConfigError, match=r"fedrl\.threshold = 100000.*1000"):
        resolve({"method": "fedrl", "data": {"name": "digits"}, "fedrl": {"threshold": 100_000}})


def test_rows_that_an_accuracy_is_counted_over() -> None:
    info = ClientInfo("one", {"train": 30, "validation": 0, "test": 0}, IMAGES)
    assert fitted(batch=20).rows(info) == 20 and fitted(batch=64).rows(info) == 30
    assert fitted(batch=20, epochs=2).rows(info) == 60


@pytest.mark.parametrize(
    ("settings", "clients", "code", "named"),
    [
        ({}, 1, "too-few-clients", ["clients = 1"]),
        ({"retrain": 17}, 10, "phase-exceeds-rounds", ["retrain = 17", "16 rounds"]),
        ({"warmup": 14, "retrain": 4}, 10, "phase-exceeds-rounds", ["warmup = 14", "12", "16 rounds"]),
        ({"retrain_crop": 8}, 10, "exceeds-image-size", ["retrain_crop = 8", "8x8", "7"]),
        ({"policy_betas": [0.5, 1.0]}, 10, "invalid-setting", ["policy_betas = [0.5, 1.0]"]),
        ({"channels": 2_000_000}, 10, "network-too-large", ["channels = 2000000"]),
        ({"retrain_channels": 100_000}, 10, "network-too-large", ["retrain_channels = 100000", "retrain_cells = 8"]),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    settings: dict[str, Any], clients: int, code: str, named: list[str]
) -> None:
    with refused(ConfigError, code, *named) as problem:
        fitted(clients, **settings)
    assert "\n" not in str(problem.value)


def test_tables_and_tiny_images_are_refused() -> None:
    with refused(ConfigError, "images-required"):
        FedRLConfig(rounds=4).fitted(TABLE, 4)
    with refused(ArchitectureError, "image-too-small", "2x2"):
        FedRLConfig(rounds=4).fitted(Schema("image", (1, 2, 2), ("a", "b")), 4)


def test_words_are_checked_where_they_stand() -> None:
    for key, value in (("correction", "none"), ("transmission", "fast")):
        with pytest.raises(ConfigError, match=rf"fedrl\.{key}"):
            resolve({"method": "fedrl", "data": {"name": "digits"}, "fedrl": {key: value}})


def test_the_papers_table() -> None:
    """Table I, as the preset has it: 10,000 and 6,000 steps, then 6,000 of federated training."""
    settings: Any = resolve({"method": "fedrl", "preset": "paper", "data": {"name": "cifar10"}}).settings
    fit = settings.fitted(Schema("image", (3, 32, 32), tuple("0123456789")), 10)
    assert [fit.phase(done) for done in (9_999, 10_000, 15_999, 16_000)] == ["warmup", "search", "search", "final"]
    assert (fit.batch, fit.lr, fit.momentum, fit.weight_decay, fit.clip) == (256, 0.025, 0.9, 3e-4, 5)
    assert (fit.policy_lr, fit.policy_decay, fit.policy_clip, fit.baseline) == (0.003, 1e-4, 5, 0.99)
    assert (fit.retrain_crop, fit.retrain_flip, fit.retrain_cutout) == (4, 0.5, 16)
