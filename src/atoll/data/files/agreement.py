"""Whether the data of all sites is of one form, from what each site tells of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from atoll.core.messages import Payload
from atoll.data.files.images import sorted_classes
from atoll.errors import DataError, nearest

WORDS = {"csv": "a CSV table", "npz": "an NPZ archive", "pictures": "pictures"}


def agree(told: Mapping[str, Payload], declared: Sequence[str] | None = None) -> tuple[Payload, dict[str, str]]:
    """The form of the sites' data, and why some of them cannot take part.

    Most sites decide: those that differ are left out, each with one line. `declared` classes are all there may be.
    """
    names = sorted(told)
    if not names:
        raise DataError("no site has told of its data; start the sites, then the run", code="no-site-data")
    kinds = {name: _kind(told[name]) for name in names}
    common = Counter(kinds.values()).most_common()[0][1]
    first = next(name for name in names if sum(kind == kinds[name] for kind in kinds.values()) == common)
    refused = {name: _difference(told[name], told[first], first) for name in names if kinds[name] != kinds[first]}
    for name in names:
        strange = [str(label) for label in told[name]["labels"] if declared is not None and str(label) not in declared]
        if name not in refused and strange:
            refused[name] = f"class '{strange[0]}' is not among data.classes; {nearest(strange[0], declared or ())}"
    agreed = [told[name] for name in names if name not in refused]
    if not agreed:
        raise DataError(
            f"no site's data fits: {'; '.join(f'{name}: {why}' for name, why in refused.items())}", code="no-site-fits"
        )
    return _form(agreed), refused


def _kind(told: Payload) -> tuple[object, ...]:
    """Equal for sites whose data can be learnt from together."""
    if told["kind"] == "csv":
        return ("csv", tuple(sorted(told["features"])), tuple(sorted(told["text"])), told["numbered"])
    if told["kind"] == "npz":
        names = (tuple(told["features"] or ()), tuple(told["classes"] or ()))
        return ("npz", tuple(told["shape"]), told["dtype"], told["numbered"], *names)
    return ("pictures", *told["size"])


def _difference(told: Payload, usual: Payload, first: str) -> str:
    """In which way a site's data differs from that of most sites, in words."""
    if told["kind"] != usual["kind"]:
        return f"its data is {WORDS[told['kind']]}, at site '{first}' it is {WORDS[usual['kind']]}; bring one kind"
    if told["kind"] == "pictures":
        own, other = ("x".join(map(str, size)) for size in (told["size"], usual["size"]))
        return f"its pictures have {own} pixels, at site '{first}' {other}; all sites need one size"
    if told["kind"] == "npz" and (told["shape"], told["dtype"]) != (usual["shape"], usual["dtype"]):
        own, other = (f"{'x'.join(map(str, one['shape']))} {one['dtype']}".strip() for one in (told, usual))
        return f"its rows have shape {own}, at site '{first}' {other}; all sites need the same"
    missing = sorted(set(usual["features"] or ()) - set(told["features"] or ()))
    extra = sorted(set(told["features"] or ()) - set(usual["features"] or ()))
    if missing:
        return f"it has no column '{missing[0]}', which site '{first}' has; all sites need the same columns"
    if extra:
        return f"it has a column '{extra[0]}' that site '{first}' has not; all sites need the same columns"
    text = sorted(set(told.get("text", ())) ^ set(usual.get("text", ())))
    if text:
        return f"column '{text[0]}' is text at one site and numbers at another ('{first}'); make it one of them"
    if told["numbered"] != usual["numbered"]:
        return f"one labels by words, site '{first}' by numbers or the other way round; use one of them"
    return f"its class or feature names are not those of site '{first}'; all sites need the same, in one order"


def _form(agreed: list[Payload]) -> Payload:
    """What is needed to read each site's rows in the same way."""
    first = agreed[0]
    text = {name: sorted({word for one in agreed for word in one["text"][name]}) for name in first.get("text", {})}
    labels = sorted({label for one in agreed for label in one["labels"]})
    given = bool(first.get("classes")) and first["numbered"]
    if first["kind"] == "pictures":
        labels = sorted_classes(set(labels))
    elif first["numbered"]:
        labels = sorted({int(label) for label in labels})
    classes = list(first["classes"]) if first.get("classes") else [str(label) for label in labels]
    if len(classes) < 2:
        raise DataError(
            f"all sites together have one class, '{classes[0]}'; a classifier needs at least two", code="single-class"
        )
    return {
        "kind": first["kind"],
        "features": first.get("features"),
        "text": text,
        "grey": all(one.get("grey", False) for one in agreed),
        "numbered": first.get("numbered", False),
        "labels": list(first["classes"]) if first.get("classes") and not first["numbered"] else labels,
        "given": given,
        "classes": classes,
    }


def check_form(told: object) -> None:
    """What a site tells is a stranger's word: refuse anything that has not the form of a description."""
    kind = told.get("kind") if isinstance(told, dict) else None
    fields = FIELDS.get(kind) if isinstance(kind, str) else None
    fine = isinstance(told, dict) and fields is not None and all(fits(told.get(key)) for key, fits in fields.items())
    if not fine or not isinstance(told, dict) or told.get("numbered", False) == _texts(told["labels"]):
        raise DataError(
            "what the site tells of its data has not the form of a description; is its Atoll of the server's version?",
            code="invalid-description",
        )


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _numbers(value: object) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 < item < 2**20 for item in value)


def _labels(value: object) -> bool:
    """Words or finite numbers, not both."""
    if not isinstance(value, list) or not value:
        return False
    return _texts(value) or all(type(item) in (int, float, bool) and np.isfinite(item) for item in value)


def _table_of_texts(value: object) -> bool:
    return isinstance(value, dict) and all(_texts(item) for item in value.values())


def _truth(value: object) -> bool:
    return isinstance(value, bool)


FIELDS: dict[str, dict[str, Callable[[object], bool]]] = {
    "csv": {"features": _texts, "text": _table_of_texts, "numbered": _truth, "labels": _labels},
    "npz": {
        "shape": _numbers,
        "dtype": lambda value: isinstance(value, str),
        "features": lambda value: value is None or _texts(value),
        "classes": lambda value: value is None or _texts(value),
        "numbered": _truth,
        "labels": _labels,
    },
    "pictures": {"size": _numbers, "grey": _truth, "labels": _texts},
}
