"""Tables and pictures of `README.md`, from finished sweeps.

    python experiments/nevofed/figures.py apnea runs/apnea runs/apnea_fedavg

Prints the comparison as Markdown, with the best run of each side by psi on training rows (the paper's Table 5;
federated averaging does not record psi, so it is computed here from its model and the data), and writes beside this
file NAME.csv (every run and client), NAME.png (box plots) and NAME_best.svg and NAME_best.txt (the best evolved
network). Needs the data folder.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np
import torch

from atoll.config import read_file, resolve
from atoll.data import load as load_data
from atoll.report.compare import RunGroup, ScoredRun, draw_boxes, gather, markdown, spread
from atoll.report.explain.files import explain
from atoll.training.metrics import weighted_f1

HERE = Path(__file__).parent


def training_psi(scored: ScoredRun) -> float:
    """The mean over clients of the weighted F1 on their training rows."""
    if "psi" in scored.objectives:
        return scored.objectives["psi"]
    experiment = resolve(read_file(scored.run.path / "config.toml"), complete=True)
    data, module = load_data(experiment.data, experiment.seed), scored.run.model("high")
    values = []
    for name in data.names:
        x, y = data.client(name).part("train")
        with torch.inference_mode():
            found = module(torch.from_numpy(x)).argmax(1).numpy()
        classes = data.schema.outputs
        counts = np.bincount(y * classes + found, minlength=classes**2).reshape(classes, classes)
        values.append(weighted_f1(counts))
    return float(np.mean(values))


def best_rows(groups: list[RunGroup]) -> str:
    """Table 5."""
    lines = [
        "| best run by training psi | seed | training psi | weighted F1 on test, over clients |",
        "|---|---|---|---|",
    ]
    for group in groups:
        psi = [training_psi(run) for run in group.runs]
        best = group.runs[int(np.argmax(psi))]
        values = list(best.clients.values())
        lines.append(f"| {group.name} | {best.run.manifest['seed']} | {max(psi):.4f} | {spread(values)} |")
    return "\n".join(lines) + "\n"


def genome_sizes(group: RunGroup) -> str:
    """Mean bytes of a genome on the wire and as JSON, over all rounds of all runs."""
    events = [event["metrics"] for run in group.runs for event in run.run.rounds if "genome_bytes" in event["metrics"]]
    if not events:
        return ""
    size, text = (np.mean([event[name] for event in events]) for name in ("genome_bytes", "genome_json_bytes"))
    return f"{group.name}: a genome is {size:.0f} bytes on the wire and {text:.0f} as JSON ({text / size:.1f} times)\n"


def personal(group: RunGroup) -> str:
    """The clients' own bests, each on its own client's test rows."""
    runs = []
    for run in group.runs:
        own = [c for c in run.run.result["candidates"] if c["id"].startswith("personal-")]
        runs.append([figures["test_f1"] for c in own for figures in c["clients"].values()])
    if not all(runs):
        return ""
    means = [float(np.mean(values)) for values in runs]
    return f"{group.name}: personalised networks, each on its own client's test rows: {spread(means)}\n"


def write_csv(groups: list[RunGroup], path: Path) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["group", "seed", "client", "test_f1"])
        for group in groups:
            for run in group.runs:
                for name, value in run.clients.items():
                    writer.writerow([group.name, run.run.manifest["seed"], name, f"{value:.6f}"])


def main() -> None:
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    name, groups = sys.argv[1], gather([Path(folder) for folder in sys.argv[2:]])
    print(markdown(groups))
    print(best_rows(groups))
    print("".join(genome_sizes(group) + personal(group) for group in groups))
    write_csv(groups, HERE / f"{name}.csv")
    draw_boxes(groups, HERE / f"{name}.png")
    best = groups[0].best()
    if best is not None:
        folder = best.run.path / "explained-high"
        explain(best.run, "high", folder)
        (HERE / f"{name}_best.svg").write_text((folder / "network.svg").read_text())
        (HERE / f"{name}_best.txt").write_text((folder / "formula.txt").read_text())


if __name__ == "__main__":
    main()
