"""Which versions a site must have: those of the server, as they were written into its bundle."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

# Another torch or numpy gives other bits; another Flower may not understand the link; another Atoll has other jobs.
PACKAGES = ("atoll", "flwr", "torch", "numpy")


def installed() -> dict[str, str]:
    """What is installed here; a package that is missing is left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def differences(wanted: dict[str, str], here: dict[str, str]) -> list[str]:
    """One line for every package that is missing or of another version, with what to do.

    A build for another processor (`2.13.0+cpu`) is the same version, and patches of Python do not matter.
    """
    lines = []
    for name in PACKAGES:
        if name not in wanted:
            continue
        version_wanted, found = _public(wanted[name]), here.get(name)
        way_out = f"the server has {version_wanted}; run: pip install '{name}=={version_wanted}'"
        if found is None:
            lines.append(f"{name} is missing, {way_out}")
        elif _public(found) != version_wanted:
            lines.append(f"{name} is {found}, {way_out}")
    if "python" in wanted and _minor(here.get("python", "")) != _minor(wanted["python"]):
        lines.append(
            f"Python is {here.get('python')}, the server has {wanted['python']}; use {_minor(wanted['python'])}"
        )
    return lines


def _public(text: str) -> str:
    return text.partition("+")[0]


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])
