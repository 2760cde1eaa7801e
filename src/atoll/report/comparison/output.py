"""A comparison as a file, by its suffix: a page, a table or box plots; and as plain data."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from atoll.errors import ConfigError
from atoll.report.comparison.boxes import draw_boxes
from atoll.report.comparison.csv_file import comparison_csv
from atoll.report.comparison.rows import Comparison
from atoll.report.comparison.tables import verdict
from atoll.report.comparison.volumes import Volumes, common_volumes, own_volumes
from atoll.report.figures.canvas import FORMATS


def write_comparison(found: Comparison, out: Path, folders: Sequence[Path]) -> Path:
    """The file. `folders` are what was compared, for the page's note on how it was made."""
    kind = out.suffix.lower().lstrip(".")
    if kind in FORMATS:
        return draw_boxes(found, out)
    if kind not in ("html", "csv"):
        raise ConfigError(
            f"'{out}': a comparison is written as .html, .csv, .png or .svg; end the name with one of them",
            code="unknown-report-format",
        )
    from atoll.report.html.comparison.page import comparison_page
    from atoll.report.html.run_report import write_text

    return write_text(out, comparison_csv(found) if kind == "csv" else comparison_page(found, folders))


def plain_comparison(found: Comparison) -> dict[str, Any]:
    """Rows and differences for programs."""
    rows = [
        {
            "group": row.group,
            "pick": row.pick,
            "seeds": [one.seed for one in row.found],
            "test_error": row.values("error"),
            "weighted_f1": [_known(value) for value in row.values("f1")],
            "macs": _known(row.mean("macs")),
            "executed_macs": _known(row.mean("executed_macs")),
            "params": _known(row.mean("params")),
            "client_macs": [one.run.result["ledger"].get("client_macs") for one in row.found],
            "bytes_up": [one.run.result["ledger"].get("bytes_up") for one in row.found],
            "bytes_down": [one.run.result["ledger"].get("bytes_down") for one in row.found],
        }
        for row in found.rows
    ]
    differences = [
        {
            "group": one.row.group,
            "pick": one.row.pick,
            "against": found.rows[0].name,
            "seeds": one.seeds,
            "mean": _known(one.interval.mean),
            "low": _known(one.interval.low),
            "high": _known(one.interval.high),
            "p": _known(one.p),
            "verdict": verdict(one),
        }
        for one in found.differences
    ]
    return {
        "measure": found.measure,
        "rows": rows,
        "differences": differences,
        "hypervolume": [_plain_volumes(one) for one in own_volumes(found)],
        "common_hypervolume": [_plain_volumes(one) for one in common_volumes(found)],
        "tuning": [one._asdict() for one in found.tuning],
        "notes": found.notes,
    }


def _plain_volumes(one: Volumes) -> dict[str, Any]:
    return {
        "group": one.group,
        "by_seed": {str(seed): value for seed, value in one.by_seed.items()},
        "against": one.against or None,
        "seeds": list(one.seeds),
        **{name: _known(value) for name, value in one.difference._asdict().items()},
        "p": _known(one.p),
    }


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value
