"""Same seed, same bits: what torch and its math library need for that.

Holds on one kind of CPU. Results differ between one and two threads, so every process computes with one.
"""

from __future__ import annotations

import os
import platform

# To be set before torch is loaded, so an engine puts these into the environment of the workers it starts.
# MKL_CBWR: MKL then takes the same code path for the same sizes whatever the alignment; measured to cost nothing.
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "MKL_CBWR": "AUTO"}


def prepare_environment() -> None:
    """Set what this process lacks of `ENVIRONMENT`; what a user has set stays. Call before torch is loaded."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def single_thread() -> None:
    """Make torch compute with one thread in this process, from now on."""
    import torch

    torch.set_num_threads(1)


def record() -> dict[str, str | int | None]:
    """What the bits of a run depend on besides its seed, for the manifest."""
    import torch

    settings: dict[str, str | int | None] = {name: os.environ.get(name) for name in ENVIRONMENT}
    return settings | {
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "machine": platform.machine(),
    }
