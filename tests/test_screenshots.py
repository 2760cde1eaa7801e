"""The screenshots of the documentation, taken from real runs in a real browser.

`make screenshots` makes those of docs/images again: it sets ATOLL_SCREENSHOTS to that folder, and the runs are then the
ones that the documentation shows. They are left in build/screenshots, where a second call finds them. Otherwise small
runs serve, and the screenshots are only checked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from atoll.api import search
from atoll.dashboard.server import DashboardServer
from atoll.report.figures.catalogue import draw_figures
from atoll.report.html.run_report import write_report
from atoll.run.reader import load
from browsers import DESK, PHONE, chromium, opened, scrolls_sideways
from programs import program, rounds_done, wait_until

pytestmark = pytest.mark.deploy  # a browser takes seconds for each page

WANTED = os.environ.get("ATOLL_SCREENSHOTS")
BUILD = Path(__file__).resolve().parents[1] / "build" / "screenshots"
SIZES = {"desk": DESK, "phone": PHONE}
TALL = {"desk": 1560, "phone": 844}  # pixels: the front is below the summary
SHORT = {"desk": 540, "phone": 844}
LARGEST = 200_000  # bytes of a screenshot


@dataclass(frozen=True)
class Wish:
    """A run that the screenshots show."""

    method: str
    data: Mapping[str, Any]
    rounds: int
    settings: Mapping[str, Any]


SHOWN = {
    "digits": Wish("realtime", {"name": "digits"}, 100, {}),
    "digits-fedavg": Wish("fedavg", {"name": "digits"}, 60, {}),
    "tumours": Wish("nevofed", {"name": "breast_cancer", "clients": 5}, 12, {}),
    "wine": Wish("moefl", {"name": "wine", "clients": 4}, 6, {"population": 6, "fitness_rounds": 3}),
}
SMALL = {
    "digits": Wish("realtime", {"name": "wine", "clients": 4}, 4, {}),
    "wine": Wish("fedavg", {"name": "wine", "clients": 4}, 2, {}),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the folder `runs`."""
    found = BUILD if WANTED else tmp_path_factory.mktemp("screenshots")
    for name, wish in (SHOWN if WANTED else SMALL).items():
        out = found / "runs" / name
        if not (out / "result.json").exists():
            search(wish.method, wish.data, out=out, rounds=wish.rounds, workers=0, **wish.settings)
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = Path(WANTED).resolve() if WANTED else tmp_path
    found.mkdir(parents=True, exist_ok=True)
    return found


def looks(name: str) -> Iterator[tuple[str, str, bool]]:
    """Name of the screenshot, kind of screen, dark or not."""
    for kind in SIZES:
        for dark in (False, True) if WANTED else (kind == "phone",):
            yield f"{name}-{kind}-{'dark' if dark else 'light'}.png", kind, dark


def taken(page: Any, path: Path, height: int) -> None:
    """A screenshot of the page's upper part."""
    width = page.viewport_size["width"]
    assert not scrolls_sideways(page) and page.seen.problems == []
    page.screenshot(path=str(path), full_page=True, clip={"x": 0, "y": 0, "width": width, "height": height})
    assert 5_000 < path.stat().st_size < LARGEST, path.name


def test_screenshots_of_a_report(browser: Any, place: Path, folder: Path, tmp_path: Path) -> None:
    write_report([place / "runs" / "digits"], tmp_path / "report.html")
    address = f"file://{tmp_path}/report.html"
    for name, kind, dark in looks("report"):
        with opened(browser, address, SIZES[kind], dark) as page:
            taken(page, folder / name, TALL[kind])
    (tmp_path / "figures").mkdir()
    drawn = draw_figures([place / "runs" / "digits"], [], tmp_path / "figures", "png")
    (front,) = (path for path in drawn if path.name == "front.png")
    shutil.copy(front, folder)
    assert front.stat().st_size < LARGEST


def test_screenshots_of_the_dashboard(
    browser: Any, place: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    with in_progress(place), DashboardServer(Path("runs"), 0).in_background() as server:
        wait_until(
            lambda: sum(run.view is not None for run in server.monitor.runs()) >= len(list(Path("runs").iterdir()))
        )
        shown = place / "runs" / ("live" if WANTED else "digits")
        for name, address, heights in (
            ("dashboard", server.address, SHORT),
            ("dashboard-run", server.address_of(shown), TALL),
        ):
            for file, kind, dark in looks(name):
                with opened(browser, address, SIZES[kind], dark) as page:
                    page.get_by_text("live").first.wait_for(timeout=15_000)
                    taken(page, folder / file, heights[kind])


@contextmanager
def in_progress(place: Path) -> Iterator[None]:
    """For the documentation: a search that goes on while its screenshots are taken."""
    if not WANTED:
        yield
        return
    out = place / "runs" / "live"
    shutil.rmtree(out, ignore_errors=True)
    running = program("run", "realtime", "--data", "digits", "--rounds", 200, "--seed", 2, "--out", out)
    try:
        wait_until(lambda: rounds_done(out) >= 40, 1200)
        assert not load(out).finished
        yield
    finally:
        running.terminate()
        running.communicate()
