"""Markup that cannot be broken by the text in it: text is escaped unless it is `Html` already."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = {"br", "hr", "input", "link", "meta"}
NARROW = "\u202f"  # the space between a number and its unit: no line breaks there
CAPITALS = {"view_box": "viewBox", "preserve_aspect_ratio": "preserveAspectRatio"}


class Html(str):
    """Markup. Everything else that goes into a page is text, and is escaped."""

    __slots__ = ()


def clean(text: str) -> str:
    """Text without control characters and marks that turn the direction of writing; they are written out."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character == NARROW else character.encode("unicode_escape").decode()
        for character in text
    )


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """An element. Attributes that are None or False are left out, True has no value; `class_` is `class`, and other
    underscores are hyphens: `aria_label`, `data_hover`."""
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        word = key.rstrip("_").replace("_", "-")
        parts.append(f" {word}" if value is True else f' {word}="{escape(clean(str(value)))}"')
    parts.append(">")
    if name not in VOID:
        parts += [join(*children), f"</{name}>"]
    return Html("".join(parts))


def svg(name: str, /, *children: object, **attributes: object) -> Html:
    """An element of a drawing: attributes keep underscores as hyphens, except where SVG writes capitals."""
    renamed = {CAPITALS.get(key, key): value for key, value in attributes.items()}
    return tag(name, *children, **renamed)


def join(*children: object) -> Html:
    """Children one after the other; None is nothing, a list is its members."""
    parts: list[str] = []
    for child in children:
        if child is None:
            continue
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(escape(clean(child), quote=False))
        elif isinstance(child, Iterable):
            parts.append(join(*child))
        else:
            parts.append(escape(str(child), quote=False))
    return Html("".join(parts))


def lines(text: str) -> Html:
    """Text of several lines, for `pre`: line breaks stay."""
    return Html("\n".join(escape(clean(line), quote=False) for line in text.splitlines()))
