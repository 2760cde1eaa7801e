"""Settings of quorum, deadline and late replies that cannot work or do nothing are named before the first round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.config import Experiment, resolve
from atoll.errors import ConfigError
from atoll.run.exchanges import refuse_unreachable, without_effect
from atoll.testing import made_table
from refusals import refused


def experiment(method: str = "fedrl", **tables: Any) -> Experiment:
    return resolve({"method": method, "data": {"name": "digits"}, **tables})


def lines(engine: dict[str, Any], deadline: float | None = None, **tables: Any) -> list[str]:
    found = experiment(engine=engine, **tables)
    return without_effect(found, found.engine.rules(("compensate", "use", "drop"), deadline))


def test_settings_without_effect_are_named_with_what_gives_them_one() -> None:
    (fair,) = lines({"fair": 2})
    assert "engine.fair = 2" in fair and "engine.quorum = 1" in fair
    (late,) = lines({"late": "use"})
    assert "engine.late = 'use'" in late and "simulation.staleness" in late
    for engine in ({"fair": 1, "quorum": 0.8}, {"late": "use", "quorum": 0.8}, {"late": "use", "deadline": 5.0}):
        assert lines(engine) == []
    assert lines({"late": "drop"}) == [] == lines({"late": "use"}, simulation={"staleness": "heavy"})
    assert lines({"late": "use"}, deadline=7200.0) == [], "sites have a deadline of their own"


def test_they_are_written_down(tmp_path: Path) -> None:
    tables = {"engine": {"fair": 1}}
    run = atoll.search("fedavg", made_table(), out=tmp_path / "run", rounds=1, workers=0, settings=tables)
    assert any(line.startswith("engine.fair = 1 has no effect") for line in run.manifest["notes"])


@pytest.mark.parametrize(
    ("engine", "dropout", "words"),
    [
        # 10 * 0.25^9 * 0.75 + 0.25^10 = 0.00003, and 120 * 0.01^3 = 0.00012 nearly.
        ({"quorum": 0.9}, 0.75, ["engine.quorum = 0.9", "9 of 10 clients", "simulation.dropout = 0.75", "in 0.003 %"]),
        ({}, 0.99, ["engine.minimum = 0.25", "3 of 10 clients", "simulation.dropout = 0.99", "in 0.01 %"]),
    ],
)
def test_a_dropout_that_hardly_leaves_enough_clients_is_refused(
    engine: dict[str, Any], dropout: float, words: list[str]
) -> None:
    with refused(ConfigError, "impossible-quorum", *words):
        refuse_unreachable(experiment(engine=engine, simulation={"dropout": dropout}), 10)


def test_other_dropouts_are_not() -> None:
    refuse_unreachable(experiment(engine={"quorum": 0.9}, simulation={"dropout": 0.5}), 10)
    refuse_unreachable(experiment(simulation={"dropout": 0.95}), 2)
    refuse_unreachable(experiment(engine={"quorum": 0.9}), 10)


def test_it_is_refused_before_a_run_begins(tmp_path: Path) -> None:
    tables = {"simulation": {"dropout": 0.99}, "engine": {"quorum": 0.9}}
    with refused(ConfigError, "impossible-quorum", "engine.quorum = 0.9"):
        atoll.search("fedavg", made_table(clients=10), out=tmp_path / "run", workers=0, settings=tables)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("tables", "journalled"),
    [
        ({"engine": {"quorum": 0.6}}, True),
        ({"engine": {"deadline": 600.0}}, True),
        ({}, False),
        ({"engine": {"quorum": 0.6}, "simulation": {"speed": 1e9}}, False),
    ],
)
def test_where_the_machine_decides_who_is_late_a_local_run_has_a_journal(
    tmp_path: Path, tables: dict[str, Any], journalled: bool
) -> None:
    """A resumed run must count the same replies. On the virtual network they are the same by themselves."""
    run = atoll.search("fedavg", made_table(), out=tmp_path / "run", rounds=1, workers=0, settings=tables)
    assert (run.path / "journal").is_dir() == journalled
