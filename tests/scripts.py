"""Modules outside the package (benchmarks, experiments), which run as scripts and import their neighbours."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def script(path: str) -> ModuleType:
    """The module in this file, named from the root of the project."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module  # dataclasses look their module up here
    spec.loader.exec_module(module)
    return module
