"""Reports and comparison pages in a real browser: offline, at desk and phone width, light, dark and printed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.api import search
from atoll.report.comparison.rows import compare_runs
from atoll.report.html.comparison.page import comparison_page
from atoll.report.html.run_report import report, write_report
from atoll.report.view import view
from atoll.run.reader import load
from browsers import DESK, PAYLOADS, PHONE, chromium, findings, opened, overlapping_labels, scrolls_sideways
from page_runs import CHOICE, FIXED, candidate, event, front_metrics, simulated_tasks, write_run

pytestmark = pytest.mark.deploy  # a browser takes seconds for each page


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Pages of real runs: a search, two runs on a virtual network beside it, and a comparison over seeds."""
    folder = tmp_path_factory.mktemp("pages")
    search("realtime", {"name": "wine", "clients": 4}, out=folder / "search", rounds=4, workers=0)
    write_run(folder / "virtual", "fedavg", events=simulated_tasks(8), candidates=[candidate("final", FIXED, ["high"])])
    for seed in range(1, 9):
        for method, error in (("fedavg", 0.2), ("realtime", 0.15 + 0.01 * seed)):
            entry = candidate("net", FIXED, ["high"], tuple("abcdef"))
            entry["test"] = {**entry["test"], "test_error": error}
            out, about = folder / "sweep" / method / f"seed-{seed}", {"seed": seed}
            write_run(out, method, candidates=[entry], clients=tuple("abcdef"), manifest=about)
    (folder / "compare.html").write_text(comparison_page(compare_runs([folder / "sweep"]), [folder / "sweep"]))
    write_report([folder / "search"], folder / "report.html")
    write_report([folder / "virtual", folder / "search"], folder / "two.html")
    return {name: f"file://{folder / name}.html" for name in ("report", "two", "compare")}


NAMES = ("report", "two", "compare")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_opens_offline_and_asks_for_nothing(browser: Any, pages: dict[str, str], name: str) -> None:
    with opened(browser, pages[name], offline=True) as page:
        assert page.seen.requests == [pages[name]] and page.seen.problems == []
        assert page.locator("h1").count() == 1 and page.locator("section").count() >= 6


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [DESK, PHONE], ids=["desk", "phone"])
def test_a_page_fits_the_screen(browser: Any, pages: dict[str, str], name: str, size: dict[str, int]) -> None:
    with opened(browser, pages[name], size) as page:
        assert not scrolls_sideways(page)
        assert overlapping_labels(page) == []
        page.emulate_media(media="print")
        assert not scrolls_sideways(page) or size is PHONE


@pytest.mark.parametrize("name", ["report", "compare"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_a_page_is_accessible(browser: Any, pages: dict[str, str], name: str, dark: bool) -> None:
    with opened(browser, pages[name], dark=dark) as page:
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        assert findings(page) == []


def test_hover_keyboard_and_slider(browser: Any, pages: dict[str, str]) -> None:
    with opened(browser, pages["report"]) as page:
        frame = page.locator("#rounds .frame").first
        frame.hover(position={"x": 300, "y": 100})
        tip = page.locator(".tip")
        assert tip.is_visible() and "round" in tip.inner_text()
        frame.focus()
        page.keyboard.press("Home")
        assert "round\n1" in tip.inner_text().replace(" ", "") or re.match(r"round\s*1\b", tip.inner_text())
        page.keyboard.press("ArrowRight")
        assert re.match(r"round\s*2\b", tip.inner_text())
        slider = page.locator("#front input.slider")
        last = page.locator("#front g.layer").count() - 1
        assert slider.input_value() == str(last)
        slider.focus()
        page.keyboard.press("Home")
        shown = page.evaluate(
            "[...document.querySelectorAll('#front g.layer')].map((one) => one.getAttribute('display'))"
        )
        assert shown == [None] + ["none"] * last and page.locator("#front output").inner_text() == "1"
        page.locator("#front button.play").click()
        for _ in range(100):
            page.wait_for_timeout(50)
            if slider.input_value() == str(last):
                break
        assert slider.input_value() == str(last), "it has played to the end"


def test_theme_sorting_and_choices(browser: Any, pages: dict[str, str]) -> None:
    with opened(browser, pages["report"]) as page:
        colour = "getComputedStyle(document.body).backgroundColor"
        light = page.evaluate(colour)
        button = page.locator("button.theme")
        button.click()
        assert page.evaluate(colour) == light and button.inner_text() == "Theme: light"
        button.click()
        assert page.evaluate(colour) != light
        page.emulate_media(media="print")
        assert page.evaluate(colour) == light, "paper is white"
    with opened(browser, pages["compare"]) as page:
        heads = page.locator("#summary th button.sort")
        heads.nth(2).click()
        assert page.locator("#summary th[aria-sort=descending]").count() == 1
        views = page.locator("[data-view]")
        assert [views.nth(place).is_visible() for place in range(views.count())].count(True) == 1
        page.locator(".choice select").select_option("round")
        assert page.locator("[data-view=round]").is_visible()


def test_without_script_everything_is_there(browser: Any, pages: dict[str, str]) -> None:
    with opened(browser, pages["compare"], java_script_enabled=False) as page:
        views = page.locator("[data-view]")
        assert views.count() >= 3 and all(views.nth(place).is_visible() for place in range(views.count()))


def hostile(folder: Path, word: str) -> Path:
    """A run with this word in every text from outside: clients, classes, data, networks, errors."""
    clients, classes = [f"{word}{number}" for number in range(3)], [f"{word} {number}" for number in range(3)]
    lost = {"rounds": 1, "asked": 2, "failed": {word: 1}, "rejected": {f"{word}!": 1}}
    high = {"key": word, "error": 0.1, "macs": 9000}
    metrics = {**front_metrics(1), "high": high, "front": [[word, 0.1, 9000.0], ["b", 0.2, 10.0]]}
    events = [event(1, {**metrics, word: 0.5}, clients), event(2, {**metrics, word: 0.25}, clients)]
    events[0]["clients"][clients[0]] = lost
    entry = candidate(word, {**CHOICE, "key": [3, 0]}, ["high", f"pick {word}"], clients)
    entry["about"] = {"stopped": word}
    run = write_run(
        folder,
        "realtime",
        2,
        events=events,
        candidates=[entry, candidate("b", {"space": "fixed", "model": word}, [])],
        clients=clients,
        classes=classes,
        manifest={"source": word, "versions": {word: word}, "created": word},
    )
    result = run.path / "result.json"
    result.write_text(result.read_text().replace('"idle": 0', '"idle": 0, "failed": {"x": 1}'))
    return run.path


def test_hostile_text_does_nothing(browser: Any, tmp_path: Path) -> None:
    """Ten runs a page; a page of harmless words has exactly as many elements."""
    usual = None
    for number, words in enumerate(
        ([f"harmless {place}" for place in range(10)], *(PAYLOADS[place : place + 10] for place in range(0, 40, 10)))
    ):
        paths = [hostile(tmp_path / f"{number}-{place}", word) for place, word in enumerate(words)]
        file = tmp_path / f"{number}.html"
        file.write_text(report([view(load(path), word) for path, word in zip(paths, words, strict=True)]))
        with opened(browser, f"file://{file}") as page:
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            elements = page.evaluate("document.querySelectorAll('*').length")
            usual = usual or elements
            assert elements == usual and elements > 5000
            assert page.evaluate("window.hacked === undefined") and page.seen.dialogs == []
            assert page.seen.requests == [f"file://{file}"] and page.seen.problems == []
