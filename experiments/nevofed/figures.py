"""Tables and pictures of `README.md`, from finished sweeps.

    python experiments/nevofed/figures.py apnea runs/apnea runs/apnea_fedavg

Prints the comparison as Markdown, with the best run of each side by psi on training rows (the paper's Table 5;
federated averaging does not record psi, so it is computed here from its model and the data) and the paper's own test
(Mann-Whitney's U), and writes beside this file NAME.csv (every run and client), NAME.png (box plots) and NAME_best.svg
and NAME_best.txt (the best evolved network). Needs the data folder.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch
from scipy.stats import mannwhitneyu

from atoll.config import read_file, resolve
from atoll.data import load as load_data
from atoll.report.comparison.boxes import draw_boxes
from atoll.report.comparison.rows import Measured, Row, compare_runs
from atoll.report.comparison.tables import markdown, spread
from atoll.report.explain.files import explain
from atoll.training.metrics import weighted_f1

HERE = Path(__file__).parent


def training_psi(one: Measured) -> float:
    """The mean over clients of the weighted F1 on their training rows."""
    if "psi" in one.objectives:
        return one.objectives["psi"]
    experiment = resolve(read_file(one.run.path / "config.toml"), complete=True)
    data, module = load_data(experiment.data, experiment.seed), one.run.model("high")
    values = []
    for name in data.names:
        x, y = data.client(name).part("train")
        with torch.inference_mode():
            found = module(torch.from_numpy(x)).argmax(1).numpy()
        classes = data.schema.outputs
        counts = np.bincount(y * classes + found, minlength=classes**2).reshape(classes, classes)
        values.append(weighted_f1(counts))
    return float(np.mean(values))


def best_run(row: Row) -> tuple[Measured, float]:
    """The run of the highest training psi."""
    psi = [training_psi(one) for one in row.found]
    return row.found[int(np.argmax(psi))], max(psi)


def best_rows(rows: list[Row]) -> str:
    """Table 5."""
    lines = [
        "| best run by training psi | seed | training psi | weighted F1 on test, over clients |",
        "|---|---|---|---|",
    ]
    for row in rows:
        best, psi = best_run(row)
        lines.append(f"| {row.name} | {best.seed} | {psi:.4f} | {spread(list(best.clients.values()))} |")
    return "\n".join(lines) + "\n"


def paper_test(rows: list[Row]) -> str:
    """Mann-Whitney's U of the first row against each other one, two-tailed."""
    first, *others = rows
    lines = []
    for row in others:
        found = mannwhitneyu(first.values("f1"), row.values("f1"), alternative="two-sided")
        lines.append(f"Mann-Whitney U, {first.name} against {row.name}: {found.statistic:g}, p = {found.pvalue:.3g}\n")
    return "".join(lines)


def genome_sizes(row: Row) -> str:
    """Mean bytes of a genome on the wire and as JSON, over all rounds of all runs."""
    events = [event["metrics"] for one in row.found for event in one.run.rounds if "genome_bytes" in event["metrics"]]
    if not events:
        return ""
    size, text = (np.mean([event[name] for event in events]) for name in ("genome_bytes", "genome_json_bytes"))
    return f"{row.group}: a genome is {size:.0f} bytes on the wire and {text:.0f} as JSON ({text / size:.1f} times)\n"


def write_csv(rows: list[Row], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["network", "seed", "client", "test_f1"])
        for row in rows:
            for one in row.found:
                for name, value in one.clients.items():
                    writer.writerow([row.name, one.seed, name, f"{value:.6f}"])


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    name, found = sys.argv[1], compare_runs([Path(folder) for folder in sys.argv[2:]], "f1")
    shared = [row for row in found.rows if row.pick != "personal"]
    print(markdown(found))
    print(best_rows(shared))
    print(paper_test(shared))
    print("".join(genome_sizes(row) for row in shared))
    write_csv(found.rows, HERE / f"{name}.csv")
    draw_boxes(found, HERE / f"{name}.png")
    best, _ = best_run(shared[0])
    folder = best.run.path / "explained-global"
    explain(best.run, "global", folder)
    (HERE / f"{name}_best.svg").write_text((folder / "network.svg").read_text())
    (HERE / f"{name}_best.txt").write_text((folder / "formula.txt").read_text())


if __name__ == "__main__":
    main()
