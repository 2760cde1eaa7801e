"""A predictor: answers raw rows with a trained network, in Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from atoll.errors import DataError
from atoll.preparation.answers import Answers, answers, network_input
from atoll.preparation.tables import RowError
from atoll.preparation.value import Preparation, Statistics, expanded, parse
from atoll.store.models import Model


class Predictor:
    """Answers raw rows: a DataFrame, a list of dicts, a path (CSV, Parquet, array, image, folder of images), an array.

    `statistics` supplies what a network lacks whose clients scaled their rows each by their own statistics
    (`data.scale = "client"`): rows of that client, or the path of its `preparation.json`.
    """

    def __init__(self, model: Model, statistics: Any = None) -> None:
        from atoll.export.graph import RawNetwork, output_kind

        if statistics is not None:
            model = replace(model, preparation=with_statistics(model.preparation, statistics))
        self.model = model
        self.preparation = model.preparation
        self.kind = output_kind(model)
        self.module = RawNetwork(model).eval()  # from the numbers of raw rows to probabilities or scores

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.preparation.classes)

    def __call__(self, rows: Any, unknown_category: str = "refuse", extra_columns: str = "refuse") -> Answers:
        """The class of each row and its probabilities or scores.

        `unknown_category`: refuse, `missing` (as a missing value, where that is a category), or `zeros` (one-hot
        categories only). `extra_columns`: refuse or ignore.
        """
        from atoll.export.graph import outputs

        try:
            numbers, places = network_input(self.preparation.plain(), rows, unknown_category, extra_columns)
        except RowError as problem:
            raise DataError(str(problem), code=problem.code) from None
        return answers(self.preparation.plain(), self.kind, outputs(self.module, numbers), places)


def with_statistics(preparation: Preparation, given: Any) -> Preparation:
    """The preparation with the statistics of one client: those of its `preparation.json`, or of rows of its own."""
    if preparation.scale != "client":
        raise DataError(
            f"statistics are only needed by a network of clients with data.scale = 'client'; this one has "
            f"'{preparation.scale}': leave them out",
            code="inapplicable-setting",
        )
    if isinstance(given, (str, Path)) and Path(given).suffix == ".json":
        try:
            stored = json.loads(Path(given).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            raise DataError(f"'{given}' cannot be read ({problem})", code="file-unreadable") from None
        found = parse(stored, str(given))
        if found.statistics is None or found.model_copy(update={"statistics": None}) != preparation.model_copy(
            update={"statistics": None}
        ):
            raise DataError(f"'{given}' is not the preparation of a client of this run", code="statistics-differ")
        return found
    return preparation.with_statistics(_statistics_of_rows(preparation, given))


def _statistics_of_rows(preparation: Preparation, rows: Any) -> Statistics:
    """Mean, deviation and mean values for gaps of rows of one client."""
    from atoll.data.preprocess import moments, scaling_of, to_float

    try:
        plain = {**preparation.plain(), "statistics": None}
        values, _ = network_input(plain, rows, extra_columns="ignore")
    except RowError as problem:
        raise DataError(f"statistics: {problem}", code=problem.code) from None
    fill = None
    if preparation.kind == "table":
        values = expanded(preparation, values)
        gaps = np.isnan(values)
        fill = np.nanmean(np.where(gaps.all(axis=0), 0.0, values), axis=0).astype(np.float32)
        values = np.where(gaps, fill, values)
    scaling = scaling_of([moments(to_float(values, preparation.logarithm))], preparation.logarithm)
    return Statistics(
        fill=None if fill is None else fill.tolist(),
        mean=scaling.mean[0].tolist(),
        deviation=scaling.deviation[0].tolist(),
    )
