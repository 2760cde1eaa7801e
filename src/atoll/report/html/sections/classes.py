"""The confusion matrix of the recommended network, and the rates of each class."""

from __future__ import annotations

import math

import numpy as np

from atoll.report.html.charts.heat import confusion_matrix
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import section
from atoll.report.html.tables import TableColumn, table
from atoll.report.view import RunView
from atoll.training.metrics import class_rates

RATES = {"sensitivity": "sensitivity", "specificity": "specificity", "ppv": "PPV", "npv": "NPV"}


def classes_section(view: RunView, prefix: str = "") -> Html | None:
    """Which classes are taken for which, on test rows."""
    confusion = (view.best or {}).get("test", {}).get("confusion")
    if not confusion or len(confusion) != len(view.classes):
        return None
    rates = class_rates(np.array(confusion, np.int64))
    columns = [TableColumn("class", False), TableColumn("rows"), *map(TableColumn, RATES.values())]
    rows = [
        [name, f"{own['rows']:,}", *("-" if math.isnan(own[key]) else f"{own[key]:.3f}" for key in RATES)]
        for name, own in zip(view.classes, rates, strict=True)
    ]
    return section(
        f"{prefix}classes",
        "The classes",
        confusion_matrix(confusion, view.classes, "Confusion matrix"),
        tag("h3", "Each class against all others"),
        table(columns, rows, label="Rates of each class", sortable=True),
        lead=f"Test rows by true class and answer of {view.recommended}; a darker cell is a larger share of its row.",
    )
