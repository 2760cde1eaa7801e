"""The dashboard with 50 runs, one of them with 5,000 rounds: first paint, time from an event to the screen, memory.

    python benchmarks/dashboard.py

The runs are written by hand: a front of 20 networks, 20 clients and two tasks each in every round. The server is a
process of its own, the browser is Debian's chromium. Goals: first paint below 2 s, event to screen below 1 s, memory of
the server below 200 MB.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

RUNS, ROUNDS, LONG = 50, 200, 5000
CLIENTS, NETWORKS = 20, 20
PROGRAM = "from atoll.cli.app import main; main()"


def event(number: int) -> dict[str, Any]:
    error = 0.1 + 0.8 / (1 + 0.05 * number)
    front = [[f"{place:04}", error + 0.01 * place, 1e6 / (1 + place)] for place in range(NETWORKS)]
    high = {"key": front[0][0], "error": error, "macs": front[0][2], "test_error": error + 0.01}
    knee = {"key": front[5][0], "error": front[5][1], "macs": front[5][2]}
    metrics = {"error": error, "hypervolume": 1 - error, "front": front, "high": high, "knee": knee}
    replies = {"used": 2 * CLIENTS, "late": 0, "stale": 0, "rejected": 0, "failed": 0}
    costs = {"bytes_down": 10**6, "bytes_up": 10**5, "client_macs": 10**9, "simulated_seconds": 0.0}
    clients = {f"client-{place:03}": {"rounds": 1, "asked": 2, "used": 2} for place in range(CLIENTS)}
    ledger = {"tasks": 2 * CLIENTS, "replies": replies, **costs}
    return {"round": number, "metrics": metrics, "ledger": ledger, "wall_seconds": 0.5 * number, "clients": clients}


def write_run(folder: Path, rounds: int) -> None:
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text('method = "realtime"\nseed = 1\n[realtime]\nrounds = 10000\n')
    manifest = {
        "schema": 3,
        "method": "realtime",
        "metrics_kind": "front",
        "recommended": "high",
        "centralised": False,
        "source": "made",
        "seed": 1,
        "data": {"clients": CLIENTS, "rows": 1000},
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "preparation.json").write_text(json.dumps({"classes": ["a", "b"]}))
    (folder / "events.jsonl").write_text("".join(json.dumps(event(number)) + "\n" for number in range(1, rounds + 1)))


@contextmanager
def served(root: Path) -> Iterator[tuple[str, int]]:
    """The address of a dashboard, and its process."""
    command = [sys.executable, "-c", PROGRAM, "dashboard", str(root), "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[-1], process.pid
    finally:
        process.terminate()
        process.wait(timeout=10)


def resident(process: int) -> float:
    """Megabytes."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def busy(process: int) -> float:
    """Seconds of CPU so far."""
    parts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / 100


def first_paint(browser: Any, address: str) -> float:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.wait_for_timeout(200)
    painted = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    context.close()
    return float(painted) / 1000


def event_to_screen(browser: Any, address: str, run: Path, first: int, repeats: int = 10) -> list[float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(address)
    page.get_by_text("live").first.wait_for()
    page.evaluate(
        """() => {
          window.shown = {};
          new MutationObserver(() => {
            const found = /([\\d,]+) of 10,000 rounds so far/.exec(document.body.textContent);
            if (found) window.shown[found[1].replaceAll(",", "")] ??= Date.now();
          }).observe(document.body, { childList: true, subtree: true });
        }"""
    )
    found = []
    for number in range(first, first + repeats):
        page.wait_for_timeout(700)
        with open(run / "events.jsonl", "a") as file:
            file.write(json.dumps(event(number)) + "\n")
        start = time.time()
        while (moment := page.evaluate(f"window.shown[{number}]")) is None:
            page.wait_for_timeout(20)
        found.append(moment / 1000 - start)
    context.close()
    return found


def main() -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("no chromium is installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root = Path(folder)
        for number in range(RUNS - 1):
            write_run(root / f"run-{number:02}", ROUNDS)
        write_run(root / "long", LONG)
        size = sum(path.stat().st_size for path in root.rglob("events.jsonl")) / 1e6
        print(f"{RUNS} runs, one of {LONG:,} rounds; event logs of {size:.0f} MB")
        arguments = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        browser = playwright.chromium.launch(executable_path=chromium, args=arguments)
        with served(root) as (address, process):
            began = time.perf_counter()
            page = browser.new_page()
            page.goto(address)
            page.get_by_text(f"{RUNS} in").first.wait_for(timeout=60_000)
            page.locator("#rows tr", has_text="5,000").first.wait_for(timeout=60_000)
            print(f"all logs read and listed after {time.perf_counter() - began:.2f} s")
            own = page.locator("#rows a", has_text="long").get_attribute("href")
            page.close()
            paints = [first_paint(browser, address) for _ in range(5)]
            print(f"first paint, list of {RUNS} runs:      {statistics.median(paints):.2f} s (worst {max(paints):.2f})")
            paints = [first_paint(browser, f"{address}{own}") for _ in range(5)]
            print(f"first paint, run of {LONG:,} rounds:   {statistics.median(paints):.2f} s (worst {max(paints):.2f})")
            delays = event_to_screen(browser, f"{address}{own}", root / "long", LONG + 1)
            print(f"event to screen, the same run:     {statistics.median(delays):.2f} s (worst {max(delays):.2f})")
            print(f"memory of the server:              {resident(process):.0f} MB")
            before, moment = busy(process), time.perf_counter()
            time.sleep(5)
            share = (busy(process) - before) / (time.perf_counter() - moment)
            print(f"CPU of the server at rest:         {100 * share:.1f} % of a core")
        browser.close()


if __name__ == "__main__":
    main()
