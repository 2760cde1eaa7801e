"""Text cannot become markup, wherever it stands."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from hypothesis import given
from hypothesis import strategies as st

from atoll.report.html.markup import Html, clean, join, lines, svg, tag
from atoll.report.html.page import digest, single_file


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "<b>", Html("<i>x</i>"), None, ["&", 3]) == "<p>&lt;b&gt;<i>x</i>&amp;3</p>"
    assert tag("a", "x", href='"><script>') == '<a href="&quot;&gt;&lt;script&gt;">x</a>'
    assert tag("input", type="checkbox", checked=True, disabled=False, value=None) == '<input type="checkbox" checked>'
    assert svg("svg", view_box="0 0 1 1", stroke_width=2) == '<svg viewBox="0 0 1 1" stroke-width="2"></svg>'


def test_control_characters_and_turned_text_are_written_out() -> None:
    assert clean("a\x1b[31m\u202eb\ud800") == "a\\x1b[31m\\u202eb\\ud800"
    assert join("a\nb") == "a\\nb" and lines("a\n<b>") == "a\n&lt;b&gt;"
    single_file("\ud800", "\ud800").encode()  # a page can always be written


@given(st.text(), st.text())
def test_any_text_comes_back_as_text(inside: str, attribute: str) -> None:
    element = ElementTree.fromstring(tag("p", inside, title=attribute))
    assert list(element) == [] and (element.text or "") == clean(inside) and element.get("title") == clean(attribute)


def test_a_page_allows_its_own_script_and_style_only() -> None:
    text = single_file("t", tag("p", "x"))
    policy = text.partition('Content-Security-Policy" content="')[2].partition('"')[0].replace("&#x27;", "'")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    script = text.partition("<script>")[2].partition("</script>")[0]
    assert rules["default-src"] == "'none'" and rules["script-src"] == digest(script)
    assert "unsafe" not in policy and "http" not in policy
    assert " on" not in text.partition("<body>")[2].replace(" on ", "").partition("=")[0]
    assert "style=" not in text.partition("<body>")[2], "the policy forbids style attributes"
