"""Export: seconds and bytes for each method, and the largest difference to the original on made-up rows.

    python benchmarks/export.py

Networks come from two-round searches over digits (images) or breast_cancer (nevofed): their sizes are those of the
presets `small`, their answers are not worth anything.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import atoll

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "fedavg": ("digits", {"rounds": 1}),
    "realtime": ("digits", {"rounds": 1}),
    "moefl": ("digits", {"rounds": 4, "population": 4}),
    "fedrl": ("digits", {"rounds": 6}),
    "decnas": ("digits", {"rounds": 3, "start_rounds": 2, "tune_rounds": [1]}),
    "nevofed": ("breast_cancer", {"rounds": 3}),
}


def main() -> None:
    print(f"{'method':<10}{'format':<13}{'seconds':>8}{'bytes':>10}{'difference':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for method, (data, settings) in CASES.items():
            run = atoll.search(method, data, out=Path(folder) / method, workers=0, **settings)
            for suffix in ("onnx", "pt2", "safetensors", *(("py",) if method == "nevofed" else ())):
                start = time.perf_counter()
                done = run.export(Path(folder) / f"{method}.{suffix}", run.recommended)
                seconds = time.perf_counter() - start
                size = done.files[0].stat().st_size
                print(f"{method:<10}{suffix:<13}{seconds:>8.2f}{size:>10,}{done.difference:>12.1g}")


if __name__ == "__main__":
    main()
