"""The dashboard in a real browser: a run in progress appears, moves and ends; nothing from outside takes effect."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atoll.dashboard.followed import identifier
from atoll.dashboard.server import DashboardServer
from atoll.store.lock import lock_run
from browsers import PAYLOADS, PHONE, chromium, findings, opened, scrolls_sideways
from page_runs import candidate, event, front_metrics, made_events, result, searched, simulated_tasks, write_run

pytestmark = pytest.mark.deploy  # a browser takes seconds for each page

PATIENCE = 15.0  # seconds: the machine may be busy; benchmarks/dashboard.py measures how long it takes


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as found:
        yield found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"


@pytest.fixture
def server(root: Path) -> Iterator[DashboardServer]:
    searched(root / "done")
    with DashboardServer(root, 0).in_background() as found:
        until(lambda: all(run.state != "reading" for run in found.monitor.runs()) and found.monitor.runs() != [])
        yield found


def until(what: Callable[[], bool], message: str = "") -> None:
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end, message or "it did not happen in time"
        time.sleep(0.05)


def append(folder: Path, *events: dict[str, Any]) -> None:
    with open(folder / "events.jsonl", "a") as file:
        file.write("".join(json.dumps(one) + "\n" for one in events))


def on_page(page: Any, text: str) -> None:
    page.get_by_text(text).first.wait_for(timeout=1000 * PATIENCE)


def test_a_run_in_progress_appears_moves_and_ends(browser: Any, server: DashboardServer, root: Path) -> None:
    with opened(browser, server.address) as page:
        on_page(page, "live")
        assert page.locator("#rows tr").count() == 1
        run = write_run(root / "new", "realtime", 9, events=[]).path
        lock = lock_run(run)
        page.locator("#rows tr", has_text="new").wait_for(timeout=1000 * PATIENCE)
        page.locator("#rows tr[data-state=running]").wait_for(timeout=1000 * PATIENCE)
        append(run, event(1, front_metrics(1)))
        on_page(page, "1 / 9")
        with opened(browser, server.address_of(run)) as own:
            on_page(own, "1 of 9 rounds so far")
            on_page(own, "live")
            append(run, event(2, front_metrics(2)), event(3, front_metrics(3)))
            on_page(own, "3 of 9 rounds so far")
            assert own.locator("#front input.slider").get_attribute("max") == "2", "the slider has grown"
            high = candidate("30", {"space": "choice", "input": [1, 8, 8]}, ["high"])
            (run / "result.json").write_text(json.dumps(result("realtime", 3, [high])))
            lock.release()
            on_page(own, "The network, 30 (high), answers")
            own.locator("h1 + p .state.finished").wait_for(timeout=1000 * PATIENCE)
            assert own.seen.problems == [] and all(url.startswith(server.address) for url in own.seen.requests)
        page.locator("#rows tr[data-state=finished]", has_text="new").wait_for(timeout=1000 * PATIENCE)
        assert page.seen.problems == [] and all(url.startswith(server.address) for url in page.seen.requests)


def test_what_the_reader_does_is_not_undone_by_updates(browser: Any, server: DashboardServer, root: Path) -> None:
    run = write_run(root / "new", "realtime", 90, events=list(made_events("front", 5))).path
    until(lambda: server.monitor.run(identifier(run)) is not None)
    with opened(browser, server.address_of(run)) as page:
        on_page(page, "5 of 90 rounds so far")
        on_page(page, "live")
        page.locator("#part-cost details.numbers summary").first.click()
        page.locator("#front input.slider").fill("1")
        append(run, event(6, front_metrics(6)))
        on_page(page, "6 of 90 rounds so far")
        assert page.locator("#front output").inner_text() == "2", "someone looks at round 2: it stays"
        assert page.locator("#part-cost details.numbers").first.get_attribute("open") is not None
        page.locator("#front input.slider").fill("4")
        page.locator("#front output", has_text="6").wait_for(timeout=1000 * PATIENCE)


def test_search_filter_and_side_by_side(browser: Any, server: DashboardServer, root: Path) -> None:
    write_run(root / "other", "fedavg")
    until(lambda: len(server.monitor.runs()) == 2)
    with opened(browser, server.address) as page:
        page.locator("#rows tr").nth(1).wait_for()
        visible = page.locator("#rows tr:visible")
        page.locator("#search").fill("fedavg")
        assert visible.count() == 1 and "other" in visible.first.inner_text()
        page.locator("#search").fill("")
        page.locator("select[data-filter=state]").select_option("finished")
        assert visible.count() == 1 and "done" in visible.first.inner_text()
        page.locator("select[data-filter=state]").select_option("")
        for place in range(2):
            page.locator("#rows input[type=checkbox]").nth(place).check()
        page.get_by_role("button", name="side by side").click()
        on_page(page, "2 runs side by side")
        assert page.locator("#charts figure").count() >= 3
        page.get_by_role("link", name="All runs").click()
        on_page(page, "2 in")


def test_pages_are_accessible_and_fit_the_screen(browser: Any, server: DashboardServer, root: Path) -> None:
    write_run(root / "virtual", "fedavg", 9, events=simulated_tasks(4))
    until(lambda: len(server.monitor.runs()) == 2)
    addresses = [server.address, server.address_of(root / "virtual")]
    addresses.append(f"{server.address}side?run={identifier(root / 'done')}&run={identifier(root / 'virtual')}")
    for address in addresses:
        for dark in (False, True):
            with opened(browser, address, dark=dark) as page:
                assert findings(page) == []
        with opened(browser, address, PHONE) as page:
            assert not scrolls_sideways(page)


def test_hostile_names_do_nothing(browser: Any, server: DashboardServer, root: Path) -> None:
    """In the list: as names of methods and data. On the page of a run: as clients, classes and reasons, also of rounds
    that arrive later. Harmless words make exactly as many elements."""
    harmless = [f"harmless {number}" for number in range(len(PAYLOADS))]
    for number, word in enumerate([harmless[0], *PAYLOADS]):
        about = {"source": word, "method": word, "created": word}
        write_run(root / f"run-{number:02}", "realtime", 9, events=[event(1, {"error": 0.5})], manifest=about)
    lists = {"good": harmless, "evil": list(PAYLOADS)}
    for name, words in lists.items():
        events = [event(number, front_metrics(number), words) for number in (1, 2)]
        for word in words:
            events[0]["clients"][word] = {"rounds": 1, "asked": 1, "failed": {word: 1}}
        write_run(
            root / name, "realtime", 9, events=events, clients=words, classes=words, manifest={"source": words[0]}
        )
    until(lambda: sum(run.state == "stopped" for run in server.monitor.runs()) == len(PAYLOADS) + 3)
    with opened(browser, server.address) as page:
        on_page(page, "live")
        rows = page.evaluate(
            "[...document.querySelectorAll('#rows tr[id]')].map((one) => one.innerHTML.split('<').length)"
        )
        assert len(rows) == len(PAYLOADS) + 4 and len(set(rows)) <= 3, "one for each kind of sparkline"
        assert page.evaluate("window.hacked === undefined") and page.seen.dialogs == [] and page.seen.problems == []
    counts = {}
    for name, words in lists.items():
        with opened(browser, server.address_of(root / name)) as page:
            on_page(page, "live")
            append(root / name, event(3, front_metrics(3), words))
            on_page(page, "3 of 9 rounds so far")
            counts[name] = page.evaluate("document.querySelectorAll('*').length")
            assert page.evaluate("window.hacked === undefined") and page.seen.dialogs == [] and page.seen.problems == []
            assert all(url.startswith(server.address) for url in page.seen.requests)
    assert counts["good"] == counts["evil"] > 1000


def test_fifty_runs_and_five_thousand_rounds(browser: Any, server: DashboardServer, root: Path) -> None:
    for number in range(49):
        searched(root / f"run-{number:02}")
    long = write_run(root / "long", "realtime", 6000, events=list(made_events("front", 5000))).path
    until(lambda: sum(run.view is not None for run in server.monitor.runs()) == 51)
    with opened(browser, server.address) as page:
        assert page.locator("#rows tr").count() == 51
    start = time.monotonic()
    with opened(browser, server.address_of(long)) as page:
        on_page(page, "5,000 of 6,000 rounds so far")
        assert time.monotonic() - start < PATIENCE
        assert page.evaluate("document.querySelectorAll('*').length") < 6000
        append(long, event(5001, front_metrics(5001)))
        on_page(page, "5,001 of 6,000 rounds so far")


def test_a_page_says_when_the_dashboard_is_gone(browser: Any, root: Path) -> None:
    searched(root / "done")
    server = DashboardServer(root, 0)
    with server.in_background():
        context = opened(browser, server.address)
        page = context.__enter__()
        on_page(page, "live")
    on_page(page, "the dashboard does not answer")
    context.__exit__(None, None, None)
