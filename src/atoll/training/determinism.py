"""Bitwise reproducibility: what torch and its math library need for it.

It holds for one CPU type. Results differ between one and two threads, so every process computes with one.
"""

from __future__ import annotations

import os
import platform

# These must be set before torch is loaded, so an engine passes them to the workers that it starts.
# With MKL_CBWR, MKL takes the same code path for equal sizes whatever the alignment; it has no measurable cost.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MKL_CBWR": "AUTO"}


def prepare_environment() -> None:
    """Set the variables of `ENVIRONMENT` that the user has not set. Call this before torch is loaded."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def single_thread() -> None:
    """Make torch use one thread in this process."""
    import torch

    torch.set_num_threads(1)


def record() -> dict[str, str | int | None]:
    """What the results of a run depend on besides its seed, for the manifest."""
    import torch

    settings: dict[str, str | int | None] = {name: os.environ.get(name) for name in ENVIRONMENT}
    return settings | {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
    }
