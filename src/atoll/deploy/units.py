"""Unit files with which systemd keeps a federation's server or a site's node running for the user who installs them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from atoll.deploy.bundle import Bundle
from atoll.deploy.layout import Layout
from atoll.errors import SiteError
from atoll.store.files import replace_file

UNIT = """\
[Unit]
Description=Atoll: {what}

[Service]
ExecStart={command}
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec=60
NoNewPrivileges=yes
UMask=0077

[Install]
WantedBy=default.target
"""


def user_units() -> Path:
    """Where systemd looks for the units of this user."""
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "systemd" / "user"


def install_site(bundle: Bundle, data: Path, label: str, folder: Path) -> Path:
    """The unit of a site's node; it joins without questions, as `site.toml` was answered before."""
    command = ["site", "join", str(bundle.folder), "--data", str(data), "--label", label, "--yes"]
    return _write(folder / f"atoll-site-{bundle.site.name}.service", f"site {bundle.site.name}", command)


def install_server(layout: Layout, folder: Path) -> Path:
    """The unit of a federation's server."""
    command = ["federation", "server", str(layout.folder)]
    return _write(folder / f"atoll-federation-{layout.port}.service", f"server at {layout.public_address}", command)


def _write(path: Path, what: str, words: list[str]) -> Path:
    program = Path(sys.executable).parent / "atoll"
    if not program.exists():
        raise SiteError(
            f"{program}: there is no such program; install Atoll with: pip install 'atoll[flower]'",
            code="program-missing",
        )
    command = " ".join(map(_quoted, [str(program), *words]))
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, UNIT.format(what=what, command=command).encode())
    return path


def _quoted(word: str) -> str:
    """A word of a unit's command, by the rules of systemd."""
    if not word.isprintable():
        raise SiteError(f"{word!r}: a path in a unit must not contain a line break; rename it", code="bad-path")
    for character, written in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        word = word.replace(character, written)
    return f'"{word}"'
