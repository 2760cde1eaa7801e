"""`make dist`: the wheel that is built from the sdist works in an environment of its own."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BUILD = "import sys; from setuptools import build_meta as build; print(getattr(build, sys.argv[1])(sys.argv[2]))"


def done(*command: object, cwd: Path) -> str:
    found = subprocess.run([str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-2000:]
    return found.stdout


def built(kind: str, source: Path, out: Path) -> Path:
    return out / done(sys.executable, "-c", BUILD, kind, out, cwd=source).splitlines()[-1]


@pytest.mark.deploy
def test_the_distribution_works_in_a_fresh_environment(tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "dist"
    files = done("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in files:
        if name.startswith("src/") or "/" not in name:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).write_bytes((ROOT / name).read_bytes())
    sdist = built("build_sdist", copy, out)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    wheel = built("build_wheel", source, out)
    with zipfile.ZipFile(wheel) as archive:
        inside = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in inside if name.endswith(".dist-info/METADATA"))
    shipped = {name.removeprefix("src/") for name in files if name.startswith("src/atoll/")}
    assert shipped <= inside, f"not in the wheel: {sorted(shipped - inside)[:5]}"
    about = message_from_string(metadata)
    assert about["Requires-Python"] == ">=3.11" and about["License-Expression"] == "Apache-2.0"
    assert "Operating System :: POSIX :: Linux" in (about.get_all("Classifier") or [])

    fresh = tmp_path / "fresh"
    venv.create(fresh, with_pip=False)
    python = fresh / "bin" / "python"
    done(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        "-qq",
        wheel,
        cwd=tmp_path,
    )
    # Everything but Atoll comes from here: a folder that a .pth file adds brings packages, but not its own .pth files,
    # so that the editable installation is not seen.
    (site,) = (fresh / "lib").glob("python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    where = done(python, "-c", "import atoll; print(atoll.__file__)", cwd=tmp_path).strip()
    assert Path(where).is_relative_to(fresh)
    atoll = fresh / "bin" / "atoll"
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert done(atoll, "--version", cwd=tmp_path).strip() == f"atoll {version}"
    command = ["run", "realtime", "--data", "wine", "--clients", "4", "--rounds", "2", "--workers", "0", "--out", "run"]
    assert "run directory: run" in done(atoll, *command, cwd=tmp_path)
    assert "written: report.html" in done(atoll, "report", "run", "-o", "report.html", cwd=tmp_path)


def test_the_citation_names_version_and_papers() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in text and text.count("    title: ") == 5
    assert [name for name in ("realtime", "moefl", "nevofed", "fedrl", "decnas") if f"method {name}" not in text] == []
