"""Curves and table of `README.md`, from finished runs.

    python experiments/fedavg/figures.py runs/mnist_iid runs/mnist_shards runs/mnist_central

Writes one CSV per run, named after its directory, and mnist.png with all curves, beside this file; prints the table.
"""

from __future__ import annotations

import sys
from pathlib import Path

from curves import curve, draw_curves, write_curve

from atoll import load
from atoll.run.reader import Run

HERE = Path(__file__).parent
ROUNDS = (10, 20, 50, 100)


def table(runs: dict[str, Run]) -> str:
    """Markdown: accuracy by round, and what the clients spent in all."""
    columns = ["run", *(f"round {number}" for number in ROUNDS), "up, GB", "down, GB", "GMAC", "seconds"]
    lines = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    for name, run in runs.items():
        points, ledger = curve(run), run.result["ledger"]
        cells = [name, *(f"{points[number]:.2%}" for number in ROUNDS)]
        cells += [f"{ledger[key] / 1e9:.3f}" for key in ("bytes_up", "bytes_down")]
        cells += [f"{ledger['client_macs'] / 1e9:,.0f}", f"{run.result['wall_seconds']:,.0f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    runs = {Path(folder).name: load(folder) for folder in sys.argv[1:]}
    for name, run in runs.items():
        write_curve(run, HERE / f"{name}.csv")
    draw_curves(runs, HERE / "mnist.png")
    print(table(runs))


if __name__ == "__main__":
    main()
