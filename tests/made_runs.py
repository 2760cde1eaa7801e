"""Parts of run directories that tests write by hand."""

from __future__ import annotations

import json
from typing import Any

from atoll.methods import find_method


def manifest(method: str, **other: Any) -> str:
    """The text of manifest.json, as far as reports read it."""
    found = find_method(method)
    kinds = {"metrics_kind": found.metrics_kind, "centralised": found.centralised, "recommended": found.recommended}
    return json.dumps({"method": method, **kinds, **other})
