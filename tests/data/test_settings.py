"""The `[data]` table: what it takes, and one line for what it does not."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from atoll.data import DataSettings
from atoll.data.settings import name_or_folder, parse_partition
from atoll.errors import ConfigError, DataError
from refusals import refused


def test_a_table_as_it_stands_in_a_file() -> None:
    text = """
    name = "digits"
    clients = 20
    partition = "dirichlet:0.5"
    split = [0.8, 0.2, 0]
    scale = "federated"
    logarithm = true
    """
    settings = DataSettings.model_validate(tomllib.loads(text))
    assert settings.clients == 20 and settings.split == (0.8, 0.2, 0.0) and settings.logarithm is True
    assert settings.label == "label" and settings.categories == "refuse"


def test_settings_are_frozen() -> None:
    with pytest.raises(ValidationError):
        DataSettings(name="digits").clients = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [{"colour": 1}, {"clients": "10"}, {"clients": True}, {"clients": 2.5}, {"scale": "maximum"}, {"split": [1, 0]}],
)
def test_unknown_keys_and_wrong_types(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DataSettings.model_validate({"name": "digits", **wrong})


@pytest.mark.parametrize(
    ("values", "code", "named"),
    [
        ({"clients": 0}, "invalid-setting", ["data.clients = 0", "1"]),
        ({"rows": 1}, "invalid-setting", ["data.rows = 1", "2"]),
        ({"partition": "dirichlet"}, "invalid-partition-number", ["data.partition = 'dirichlet'", "dirichlet:0.5"]),
        ({"partition": "dirichlet:0"}, "invalid-partition-number", ["'dirichlet:0'"]),
        ({"partition": "dirichlet:-1"}, "invalid-partition-number", ["'dirichlet:-1'"]),
        ({"partition": "dirichlet:nan"}, "invalid-partition-number", ["'dirichlet:nan'"]),
        ({"partition": "classes:2.5"}, "invalid-partition-number", ["'classes:2.5'", "classes:2"]),
        ({"partition": "iid:3"}, "needless-partition-number", ["'iid:3'"]),
        ({"partition": "dirichlt:1"}, "unknown-partition", ["'dirichlt:1'", "'dirichlet'"]),
        ({"split": [0.5, 0.2, 0.2]}, "invalid-split", ["data.split", "0.5/0.2/0.2", "0.9"]),
        ({"folder": "x"}, "not-one-data-source", ["data.name", "data.folder"]),
        ({"client_column": "who"}, "inapplicable-setting", ["data.client_column = 'who'"]),
        ({"name": ""}, "not-one-data-source", ["data.name", "data.folder"]),
    ],
)
def test_impossible_values_are_one_line_each(values: dict[str, Any], code: str, named: list[str]) -> None:
    with refused(ConfigError, code, *named) as caught:
        DataSettings.model_validate({"name": "digits", **values})
    assert "\n" not in str(caught.value)


def test_neither_name_nor_folder() -> None:
    with refused(ConfigError, "not-one-data-source", "data.name", "data.folder"):
        DataSettings()


def test_partitions_are_taken_apart() -> None:
    assert parse_partition("shards:2") == ("shards", 2)
    assert parse_partition("quantity:0.3") == ("quantity", 0.3)
    assert parse_partition("natural") == ("natural", 0.0)


def test_a_word_is_a_name_or_a_folder(tmp_path: Path) -> None:
    assert name_or_folder("digits") == {"name": "digits"}
    assert name_or_folder(str(tmp_path)) == {"folder": str(tmp_path)}
    with refused(DataError, "unknown-dataset", "'digit'", "'digits'"):
        name_or_folder("digit")
