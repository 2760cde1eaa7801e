"""A real browser for tests of pages: Debian's chromium, driven by playwright. One per test module."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
ARGUMENTS = [
    "--no-sandbox",  # tests may run as root in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SERIOUS = {"serious", "critical"}
# What attackers put into names. Each would set window.hacked or make an element if it were markup or script.
PAYLOADS = (
    "<script>window.hacked=1</script>",
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=window.hacked=1>",
    '"><img src=x onerror=window.hacked=1>',
    "'><svg onload=window.hacked=1>",
    "<svg/onload=window.hacked=1>",
    "</svg><script>window.hacked=1</script>",
    "</title><script>window.hacked=1</script>",
    "</style><script>window.hacked=1</script>",
    "</textarea><script>window.hacked=1</script>",
    "<!--<script>window.hacked=1</script>-->",
    "]]><script>window.hacked=1</script>",
    "<iframe src=javascript:window.hacked=1>",
    "<a href=javascript:window.hacked=1>x</a>",
    "javascript:window.hacked=1",
    "<body onload=window.hacked=1>",
    "<details open ontoggle=window.hacked=1>",
    "<input autofocus onfocus=window.hacked=1>",
    "<math><mtext></mtext><mglyph><style><img src=x onerror=window.hacked=1>",
    "<template><script>window.hacked=1</script></template>",
    "<object data=javascript:window.hacked=1>",
    "<embed src=javascript:window.hacked=1>",
    "<meta http-equiv=refresh content=0;url=https://evil.example>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<base href=https://evil.example/>",
    "<form action=https://evil.example><button>x",
    "<video><source onerror=window.hacked=1>",
    "<marquee onstart=window.hacked=1>",
    "&lt;script&gt;window.hacked=1&lt;/script&gt;",
    "&#60;script&#62;window.hacked=1",
    "\u202e<script>window.hacked=1</script>",
    "\x00<script>window.hacked=1</script>",
    "\x1b[31m<b>red</b>",
    "${window.hacked=1}",
    "{{constructor.constructor('window.hacked=1')()}}",
    "' onmouseover='window.hacked=1",
    '" onfocus="window.hacked=1" tabindex="0',
    "`-window.hacked=1-`",
    "\\u003cscript\\u003ewindow.hacked=1",
    "<style>*{background:url(https://evil.example)}</style>",
)


@dataclass
class Seen:
    """What a page asked for and complained about."""

    requests: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser; the test is skipped where there is none, which CI counts as a failure."""
    if CHROMIUM is None:
        pytest.skip("no chromium is installed: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(
    browser: Any, address: str, size: dict[str, int] | None = None, dark: bool = False, **options: Any
) -> Iterator[Any]:
    """A page in a window of its own. `page.seen` holds its requests and complaints; the caller judges them."""
    context = browser.new_context(viewport=size or DESK, color_scheme="dark" if dark else "light", **options)
    page = context.new_page()
    page.seen = Seen()
    page.on("request", lambda request: page.seen.requests.append(request.url))
    page.on("pageerror", lambda problem: page.seen.problems.append(str(problem)))
    page.on("console", lambda text: page.seen.problems.append(text.text) if text.type in ("error", "warning") else None)
    page.on("dialog", lambda dialog: (page.seen.dialogs.append(dialog.message), dialog.dismiss()))
    page.goto(address)
    try:
        yield page
    finally:
        context.close()


def findings(page: Any) -> list[str]:
    """What axe-core finds serious or critical on the page, a line each."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page).response["violations"]
    return [
        f"{one['id']} ({one['impact']}): {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for one in found
        if one["impact"] in SERIOUS
        for node in one["nodes"][:3]
    ]


def scrolls_sideways(page: Any) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth"))


def overlapping_labels(page: Any) -> list[str]:
    """Pairs of texts of one drawing whose boxes overlap by more than a hair."""
    found: list[str] = page.evaluate(
        """() => {
          const bad = [];
          for (const axis of document.querySelectorAll("svg.xaxis, svg.yaxis")) {
            const texts = [...axis.querySelectorAll("text")];
            const boxes = texts.map((one) => one.getBoundingClientRect());
            for (let i = 0; i < boxes.length; i++) for (let j = 0; j < i; j++) {
              const [a, b] = [boxes[i], boxes[j]];
              const across = a.left < b.right - 1 && b.left < a.right - 1;
              const down = a.top < b.bottom - 1 && b.top < a.bottom - 1;
              if (a.width && b.width && across && down)
                bad.push(`${texts[i].textContent} over ${texts[j].textContent}`);
            }
          }
          return bad;
        }"""
    )
    return found
