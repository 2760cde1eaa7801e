"""The documentation site: its reference names everything, its pages are in its menu, and it builds strictly."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from atoll.methods import find_method
from atoll.registry import names
from scripts import ROOT, script

reference = script("tools/reference.py")


def section(text: str, head: str) -> str:
    """The part below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(head)}\n(.*?)(?=^#|\Z)", text, re.S | re.M)
    assert found is not None, head
    return found[1]


def test_the_reference_names_every_setting() -> None:
    text = reference.settings_page()
    for name in names("methods"):
        own = section(text, f"[{name}]")
        assert [field for field in find_method(name).Config.model_fields if f"| `{field}` |" not in own] == []
    for table, (model, _) in reference.SHARED.items():
        own = section(text, f"[{table}]" if table else "Top level")
        fields = [field for field in model.model_fields if field not in {*reference.SHARED, "settings"}]
        assert [field for field in fields if f"| `{field}" not in own] == []
    assert "| `log.unit` |" in text and "`40` | `500` |" in section(text, "[realtime]")
    assert "per round, with schedule" in section(text, "[fedavg]"), "comments of a base class are found"


def test_the_reference_names_every_command_and_option() -> None:
    text = reference.commands_page()
    heads = re.findall(r"^## atoll (.+)$", text, re.M)
    assert {"run", "report", "dashboard", "data check", "datasets", "datasets fetch", "federation init"} <= set(heads)
    assert "site join" in heads and "doctor" in heads and len(heads) == len(set(heads)) >= 25
    assert "| A run directory. |" in section(text, "atoll show"), "arguments have their help"
    assert "`--methods`" in section(text, "atoll sweep") and "`--no-browser`" not in section(text, "atoll sweep")
    assert all(f"`{option}`" in section(text, "atoll run") for option in ("--data", "--track", "--dashboard", "--set"))


def test_the_reference_names_error_codes() -> None:
    text = reference.errors_page()
    known = ("unknown-method", "unknown-setting", "no-runs-found", "port-in-use", "missing-value", "extra-missing")
    known += ("column-kinds-differ", "certificate-expired", "not-a-table", "file-damaged")
    assert [code for code in known if f"`{code}` |" not in text] == []
    assert "`events-too-short` | 4 |" in text


def test_every_page_is_in_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    assert [page for page in pages if page not in menu] == []
    assert "font: false" in menu, "no fonts from remote hosts"


def test_no_page_has_a_place_for_a_figure_that_is_still_missing() -> None:
    """Such as `@KILLS@`, which is to be replaced by what was measured."""
    pages = [
        *ROOT.glob("*.md"),
        *(page for name in ("docs", "experiments", "examples") for page in (ROOT / name).rglob("*.md")),
    ]
    assert len(pages) > 30
    found = {str(page.relative_to(ROOT)): re.findall(r"@[A-Z][A-Z_]+@", page.read_text("utf-8")) for page in pages}
    assert {page: words for page, words in found.items() if words} == {}


@pytest.mark.deploy
def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "build_docs.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    site = ROOT / "build" / "site"
    assert (site / "index.html").exists() and (site / "docs" / "reference" / "settings.html").exists()
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        remote = re.findall(r'(?:\bsrc|<link[^>]*\bhref)="(https?:[^"]*)"', text)
        assert remote == [], path


@pytest.mark.deploy
def test_the_tutorial_on_own_data_as_it_is_printed(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "tutorials" / "own-data.md").read_text(encoding="utf-8")
    blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", text)
    assert len(blocks) >= 7
    tools = Path(sys.executable).parent
    done = subprocess.run(
        ["bash", "-e", "-c", f'PATH="{tools}:$PATH"\n' + "\n".join(blocks)],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "column 'mean radius': the value is missing" in done.stdout + done.stderr
    assert (tmp_path / "report.html").stat().st_size > 50_000 and (tmp_path / "net.md").exists()
    answers = (tmp_path / "answers.csv").read_text().splitlines()
    assert answers[0] == "row,class,benign,malignant" and len(answers) == 4
