"""Build the documentation site, strictly: a link that leads nowhere is an error.

    python tools/build_docs.py            # build/site/index.html

Pages keep their paths, so that a link works in the repository and on the site. The reference is made from the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import reference

ROOT = Path(__file__).resolve().parents[1]
FILES = ("README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "CITATION.cff", "LICENSE")
FOLDERS = ("docs", "experiments")


def gather(folder: Path) -> None:
    """All pages, and what they link to."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "runs", "reference"))
    reference.main(folder / "docs" / "reference")


def main() -> int:
    gather(ROOT / "build" / "docs")
    # Material's notice about another project of its authors is no matter of these pages.
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--clean", "--quiet"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    if done == 0:
        print("the documentation: build/site/index.html")
    return done


if __name__ == "__main__":
    sys.exit(main())
