"""A comparison as a CSV file: one line for each network of each run, for people who draw their own charts."""

from __future__ import annotations

import csv
import io
import math

from atoll.preparation.answers import guarded
from atoll.report.comparison.clients import worst_tenth
from atoll.report.comparison.rows import Comparison
from atoll.report.comparison.volumes import common_volumes

COLUMNS = (
    "group",
    "pick",
    "method",
    "data",
    "seed",
    "test_error",
    "weighted_f1",
    "worst_tenth_f1",
    "macs",
    "executed_macs",
    "params",
    "upload_bytes",
    "rounds",
    "client_macs",
    "bytes_up",
    "bytes_down",
    "simulated_seconds",
    "wall_seconds",
    "hypervolume",
    "common_hypervolume",
    "stopped",
    "run",
)


def comparison_csv(found: Comparison) -> str:
    """The text of the file. Words that a spreadsheet would take for a formula are made harmless."""
    volumes = {one.group: one.by_seed for one in common_volumes(found)}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in found.rows:
        for one in row.found:
            result, ledger = one.run.result, one.run.result["ledger"]
            values: dict[str, object] = {
                "group": row.group,
                "pick": row.pick or one.run.recommended,
                "method": one.run.manifest["method"],
                "data": one.run.manifest["source"],
                "seed": one.seed,
                "test_error": one.error,
                "weighted_f1": one.f1,
                "worst_tenth_f1": worst_tenth(list(one.clients.values())),
                **{name: one.objectives.get(name, "") for name in ("macs", "executed_macs", "params", "upload_bytes")},
                "rounds": result["rounds"],
                **{
                    name: ledger.get(name, "")
                    for name in ("client_macs", "bytes_up", "bytes_down", "simulated_seconds")
                },
                "wall_seconds": result.get("wall_seconds", ""),
                "hypervolume": "" if result.get("hypervolume") is None else result["hypervolume"],
                "common_hypervolume": volumes.get(row.group, {}).get(one.seed, ""),
                "stopped": result.get("stopped") or "",
                "run": str(one.run.path),
            }
            writer.writerow([_cell(values[name]) for name in COLUMNS])
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, str):
        return guarded(value)
    return "" if isinstance(value, float) and math.isnan(value) else value
