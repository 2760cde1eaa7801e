"""The rule of `conftest.py`: a skip is reported locally, and is a failure in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKIPS = {
    "by_mark": "import pytest\n\n@pytest.mark.skip(reason='no browser')\ndef test_it(): pass\n",
    "by_call": "import pytest\n\ndef test_it(): pytest.skip('no browser')\n",
    "whole_file": "import pytest\n\npytest.skip('no browser', allow_module_level=True)\n",
}
EXPECTED_FAILURE = "import pytest\n\n@pytest.mark.xfail(reason='known')\ndef test_it(): assert False\n"


def run(folder: Path, source: str, ci: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(Path(__file__).with_name("conftest.py").read_text(encoding="utf-8"))
    (folder / "test_made.py").write_text(source)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)],
        cwd=folder,
        env={**os.environ, "CI": ci},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("source", SKIPS.values(), ids=SKIPS.keys())
def test_a_skip_fails_in_ci_only_and_reports_its_reason(tmp_path: Path, source: str) -> None:
    # Exit code 5 is pytest's "no test ran", which a file skipped as a whole gives.
    here = run(tmp_path, source, ci="")
    assert here.returncode in {0, 5}
    assert "no browser" in here.stdout
    in_ci = run(tmp_path, source, ci="true")
    assert in_ci.returncode in {1, 2}
    assert "in CI no test may skip: Skipped: no browser" in in_ci.stdout


def test_an_expected_failure_is_not_a_skip(tmp_path: Path) -> None:
    assert run(tmp_path, EXPECTED_FAILURE, ci="true").returncode == 0
