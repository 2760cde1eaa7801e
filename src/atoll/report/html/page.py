"""The skeleton of a page: one file with its style and script inside, and a policy that allows nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files

from atoll.report.html.markup import Html, join, tag


@cache
def asset(name: str) -> str:
    """The text of a file that ships with this package."""
    return files("atoll.report").joinpath("assets", name).read_text(encoding="utf-8")


def digest(text: str) -> str:
    """How a content security policy names an inline script or style."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def single_file(title: str, *body: object) -> str:
    """A page that needs nothing but itself: style and script are inside, everything else is forbidden."""
    style, script = asset("page.css"), asset("page.js")
    policy = (
        f"default-src 'none'; style-src {digest(style)}; script-src {digest(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    head = [
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("style", Html(style)),
        tag("script", Html(script)),
    ]
    return document(title, head, body)


def document(title: str, head: Sequence[Html], body: object) -> str:
    """The text of an HTML file."""
    return "<!doctype html>\n" + tag(
        "html",
        tag(
            "head",
            tag("meta", charset="utf-8"),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            head,
            tag("link", rel="icon", href="data:,"),
            tag("title", title),
        ),
        tag("body", tag("a", "Skip to the content", href="#content", class_="skip"), body),
        lang="en",
    )


def top(*children: object) -> Html:
    """The line above everything: the name of the tool, and the choice of a theme."""
    brand = tag("span", "Atoll", class_="brand")
    theme = tag("button", "Theme: auto", type="button", class_="theme scripted")
    return tag("header", brand, tag("span", join(*children)), theme, class_="top")


def contents(entries: Sequence[tuple[str, str]]) -> Html:
    """Links to the sections of the page: (id, title)."""
    items = [tag("li", tag("a", title, href=f"#{name}")) for name, title in entries]
    return tag("nav", tag("ul", items), class_="contents", aria_label="Contents")


def section(name: str, title: str, *children: object, lead: str = "") -> Html:
    """A part of a page, with its heading and what it shows in a sentence."""
    return tag(
        "section",
        tag("h2", title, id=f"{name}-title"),
        tag("p", lead, class_="lead") if lead else None,
        children,
        id=name,
        aria_labelledby=f"{name}-title",
    )


def notes(title: str, sentences: Sequence[str], bad: bool = False) -> Html | None:
    """What a reader must know before trusting the rest."""
    if not sentences:
        return None
    items = [tag("li", sentence) for sentence in sentences]
    return tag("div", tag("h3", title), tag("ul", items), class_="notes bad" if bad else "notes")
