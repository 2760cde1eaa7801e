"""A site's own file: read strictly, and changed in one place only."""

from __future__ import annotations

from pathlib import Path

import pytest

from atoll.deploy.limits import Limits
from atoll.deploy.site_file import answer_labels, read_site, text_of
from atoll.errors import SiteError
from refusals import refused

LIMITED = 'name = "a"\nserver = "a:1"\n[limits]\nepsilon = 2.0'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "site.toml"
    made.write_text(text_of("north", "localhost:8443"))
    return made


def test_the_file_as_it_is_handed_out(path: Path) -> None:
    site = read_site(path)
    assert (site.name, site.server, site.share_labels) == ("north", "localhost:8443", False)
    assert site.limits == Limits()


def test_the_answer_changes_one_line(path: Path) -> None:
    before = path.read_text()
    assert answer_labels(path, True).share_labels
    assert path.read_text() == before.replace("labels = false", "labels = true")
    assert not answer_labels(path, False).share_labels
    assert path.read_text() == before


def test_how_files_are_read(tmp_path: Path) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f'{LIMITED}\n[data]\nlabel = "y"\nclasses = ["a", "b"]\ndrop = ["name"]\n')
    pinned = read_site(path).pinned
    assert pinned is not None and (pinned.label, pinned.classes, pinned.drop) == ("y", ("a", "b"), ("name",))
    path.write_text('name = "a"\nserver = "a:1"\n')
    assert read_site(path).pinned is None


@pytest.mark.parametrize("tail", ["", "\n[share]\n", "\n[limits]\nsteps = 5\n"])
def test_the_answer_finds_a_place(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(f'name = "a"\nserver = "localhost:1"\n{tail}')
    assert answer_labels(path, True).share_labels and read_site(path).share_labels
    assert read_site(path).limits.steps == (5 if "steps" in tail else Limits().steps)


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        ("name = ", "site-file-unreadable", "site.toml"),
        ('server = "a:1"', "site-file-invalid", "name:"),
        ('name = "../x"\nserver = "a:1"', "bad-site-name", "'../x'"),
        ('name = "a"\nserver = "nowhere"', "bad-server-address", "'nowhere'"),
        ('name = "a"\nserver = "a:1"\n[limits]\nstep = 5', "site-file-invalid", "limits.step:"),
        ('name = "a"\nserver = "a:1"\n[limits]\nsteps = "many"', "site-file-invalid", "limits.steps = 'many'"),
        ('name = "a"\nserver = "a:1"\n[limits]\nsteps = 0', "site-file-invalid", "limits.steps = 0"),
        ('name = "a"\nserver = "a:1"\n[share]\nlabels = "yes"', "site-file-invalid", "share.labels = 'yes'"),
        ('name = "a"\nserver = "a:1"\nshared = true', "site-file-invalid", "shared:"),
        (f"{LIMITED}\n", "site-file-invalid", "limits.epsilon = 2 needs a table [data]"),
        (f'{LIMITED}\n[data]\nlabel = "y"', "site-file-invalid", "data.classes: missing"),
        (f'{LIMITED}\n[data]\nclasses = ["a"]', "site-file-invalid", "data.classes: missing"),
        (f'{LIMITED}\n[data]\nclasses = "a"', "site-file-invalid", "data.classes = 'a'"),
        (f'{LIMITED}\n[data]\nscale = "none"', "site-file-invalid", "data.scale: not a setting of how files are read"),
        (f"{LIMITED}\n[data]\nmax_categories = 1", "site-file-invalid", "data.max_categories = 1"),
        (f"{LIMITED}\n[data]\nwindow_step = 3", "site-file-invalid", "data.window_step is for data.window only"),
    ],
)
def test_faults_are_one_line(tmp_path: Path, text: str, code: str, named: str) -> None:
    path = tmp_path / "site.toml"
    path.write_text(text)
    with refused(SiteError, code, named) as caught:
        read_site(path)
    assert "\n" not in str(caught.value)
