"""The rates of each class as a CSV file: of a network on all test rows, on each client's, and on new clients'."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from atoll.preparation.answers import guarded
from atoll.training.metrics import class_rates

COLUMNS = ("part", "client", "class", "rows", "sensitivity", "specificity", "ppv", "npv")


def measures(candidate: Mapping[str, Any], classes: Sequence[str]) -> str:
    """CSV; empty if the network was not measured. The parts: test (all test rows), client, held_out, new_client."""
    lines = list(_lines(candidate, classes))
    if not lines:
        return ""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerows([COLUMNS, *lines])
    return file.getvalue()


def _lines(candidate: Mapping[str, Any], classes: Sequence[str]) -> Iterator[list[str]]:
    for part, client, measured in _measured(candidate):
        if "confusion" not in measured:
            continue
        for name, rates in zip(classes, class_rates(np.array(measured["confusion"], np.int64)), strict=True):
            values = [rates[key] for key in COLUMNS[4:]]
            shown = ["" if math.isnan(value) else f"{value:.6f}" for value in values]
            yield [part, guarded(client), guarded(name), str(rates["rows"]), *shown]


def _measured(candidate: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    if "test" in candidate:
        yield "test", "", candidate["test"]
    for name, own in candidate.get("clients", {}).items():
        yield "client", name, own
    if "held_out" in candidate:
        yield "held_out", "", candidate["held_out"]
        for name, own in candidate["held_out"]["clients"].items():
            yield "new_client", name, own
