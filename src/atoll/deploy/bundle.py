"""A site's bundle: a folder with its key, the federation's certificate, its `site.toml` and instructions."""

from __future__ import annotations

import json
import os
import platform
import stat
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from atoll.deploy import certificates
from atoll.deploy.site_file import SiteFile, read_site, text_of
from atoll.errors import SiteError

# Another torch or numpy gives other bits, another Flower may have another protocol, and another Atoll has other jobs.
PACKAGES = ("atoll", "flwr", "torch", "numpy")


def installed() -> dict[str, str]:
    """Versions of Python and of the packages that must match; missing packages are left out."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def differences(wanted: dict[str, str], here: dict[str, str]) -> list[str]:
    """One line with a hint for every package that is missing or has another version.

    A local build (`2.13.0+cpu`) counts as the same version, and Python's patch version does not matter.
    """
    lines = []
    for name in PACKAGES:
        if name not in wanted:
            continue
        version_wanted, found = _public(wanted[name]), here.get(name)
        hint = f"the server has {version_wanted}; run: pip install '{name}=={version_wanted}'"
        if found is None:
            lines.append(f"{name} is missing, {hint}")
        elif _public(found) != version_wanted:
            lines.append(f"{name} is {found}, {hint}")
    if "python" in wanted and _minor(here.get("python", "")) != _minor(wanted["python"]):
        lines.append(
            f"Python is {here.get('python')}, the server has {wanted['python']}; use {_minor(wanted['python'])}"
        )
    return lines


def _public(text: str) -> str:
    return text.partition("+")[0]


def _minor(text: str) -> str:
    return ".".join(text.split(".")[:2])


README = """\
# Site {name}: how to join

This folder makes you the site `{name}` of the federation at `{server}`. **`site.key` is secret**: anyone who has it can
pose as your site. Keep the folder readable by you alone, and tell the federation's operator if it was ever copied
elsewhere.

1. Install Atoll with Python 3.11 or newer: `pip install 'atoll[flower]'`
2. Put your data into its own folder: one CSV file with a header line and a class column (`label` unless agreed
   otherwise). Your data stays there; it is never sent anywhere.
3. Read `site.toml` and set its limits to what you want to allow. Only you can change this file.
4. `atoll doctor --federation FOLDER --data DATA` checks that everything is in place (FOLDER: this folder).
5. `atoll site join FOLDER --data DATA`, or `./join.sh DATA`: checks your data, shows what will be shared, asks you to
   confirm, and stays connected until you stop it with Ctrl-C. A node that dies is restarted. To run it permanently,
   `atoll site install FOLDER --data DATA` writes a systemd unit.

What leaves your site: the names of columns and classes, the number of rows, sums for a common scaling (if the
experiment needs one), and updates of models trained on your rows. Rows per class leave only if you agree.
Your machine only opens connections to `{server}`; no port has to be open on your side. Its clock must not be more than
five seconds ahead of the server's.

To leave temporarily, stop the program. To leave permanently, ask the operator to remove your key, and delete this
folder.
"""

JOIN = """\
#!/bin/sh
# Joins the federation with the data in the folder given: ./join.sh DATA
exec atoll site join "$(dirname "$0")" --data "${1:?give the folder of your data}"
"""


@dataclass(frozen=True)
class Bundle:
    """A validated bundle."""

    folder: Path
    site: SiteFile

    @classmethod
    def open(cls, folder: Path) -> Bundle:
        if not folder.is_dir():
            raise SiteError(
                f"{folder}: no such folder; a bundle is the folder that `atoll federation init` made for a site",
                code="no-such-bundle",
            )
        bundle = cls(folder.resolve(), read_site(folder / "site.toml"))
        certificates.read_certificate(bundle.ca)
        certificates.read_private_key(bundle.key)
        readable = bundle.key.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)
        if readable:
            raise SiteError(
                f"{bundle.key}: others may read the key; run: chmod 600 '{bundle.key}'",
                code="key-readable-by-others",
            )
        return bundle

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def key(self) -> Path:
        return self.folder / "site.key"

    @property
    def file(self) -> Path:
        return self.folder / "site.toml"

    @property
    def work(self) -> Path:
        """The node's own folder: stored tensors, its memory, its log, Flower's files."""
        return self.folder / "work"

    @property
    def log(self) -> Path:
        return self.work / "node.log"


def write_bundle(folder: Path, name: str, server: str, ca: bytes, key: certificates.PrivateKey) -> None:
    """Write a bundle into this folder, which must be readable by its owner only."""
    (folder / "ca.crt").write_bytes(ca)
    certificates.write_site_key(folder / "site.key", key)
    (folder / "site.toml").write_text(text_of(name, server), encoding="utf-8")
    (folder / "versions.json").write_text(json.dumps(installed(), indent=1) + "\n", encoding="utf-8")
    (folder / "README.md").write_text(README.format(name=name, server=server), encoding="utf-8")
    script = folder / "join.sh"
    script.write_text(JOIN, encoding="utf-8")
    os.chmod(script, 0o755)
