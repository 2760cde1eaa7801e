"""Where data files are."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.errors import DataError


def data_folder(data_dir: str | Path | None) -> Path | None:
    """The folder that was named, or else the environment's ATOLL_DATA; None if neither is given."""
    named = data_dir or os.environ.get("ATOLL_DATA")
    if not named:
        return None
    folder = Path(named).expanduser()
    if not folder.is_dir():
        which = "--data-dir" if data_dir else "ATOLL_DATA"
        raise DataError(
            f"{which} names '{folder}', which is not a folder; create it or name another one",
            code="no-such-data-folder",
        )
    return folder
