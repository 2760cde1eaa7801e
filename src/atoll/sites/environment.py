"""The environment of every Flower process: no telemetry, no look for updates, no installer, a home of its own."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

from atoll.errors import SiteError


def flower_environment(home: Path) -> dict[str, str]:
    """This process's environment, with what Flower must find. `home` is Flower's folder, private to one owner."""
    binaries = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    return os.environ | {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",  # else the link runs an installer against PyPI
        "FLWR_HOME": str(home),
        "PATH": f"{binaries}{os.pathsep}{path}",  # Flower's programs call each other by name
        "PYTHONUNBUFFERED": "1",  # their logs are read while they run
    }


def flower_program(name: str) -> str:
    """One of Flower's programs, beside this Python."""
    path = Path(sys.executable).parent / name
    if find_spec("flwr") is None or not path.exists():
        raise SiteError(
            f"{name}: Flower is not installed here; install it with: pip install 'atoll[flower]'", code="flower-missing"
        )
    return str(path)
