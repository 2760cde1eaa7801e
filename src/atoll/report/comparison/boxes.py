"""A comparison as box plots."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atoll.report.comparison.rows import MEASURES, Comparison
from atoll.report.figures.canvas import INK, PALETTE, new_figure, plain, save, tidy
from atoll.report.figures.titles import entitle


def draw_boxes(found: Comparison, path: Path) -> Path:
    """Left: the runs of each row. Right, where clients have test rows: its clients, each as the mean over its runs."""
    panels = {f"{MEASURES[found.measure]} of the runs": [row.values(found.measure) for row in found.rows]}
    if found.clients:
        panels["weighted F1 of the clients"] = [
            [float(np.mean(row.of_client(client))) for client in found.clients if row.of_client(client)]
            for row in found.rows
        ]
    figure = new_figure((1.6 + 1.2 * len(found.rows)) * len(panels) + 1, 5.0)
    for axes, (title, values) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels.items(), strict=True):
        boxes = axes.boxplot(values, patch_artist=True, medianprops={"color": INK})
        for number, box in enumerate(boxes["boxes"]):
            box.set(facecolor=PALETTE[number % len(PALETTE)], alpha=0.55, edgecolor=INK)
        axes.set_xticklabels([plain(row.name) for row in found.rows], rotation=30, ha="right")
        axes.set_title(title, fontsize=11, color=INK)
        tidy(axes)
        axes.grid(axis="x", visible=False)
    entitle(figure, "Networks of the runs", {str(one.run.path): one.run for row in found.rows for one in row.found})
    return save(figure, path)
