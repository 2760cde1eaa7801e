"""Tests expect an error by its class, its code and the values that it names, not by its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from atoll.errors import AtollError


@contextmanager
def refused(kind: type[AtollError], code: str, *named: object) -> Iterator[pytest.ExceptionInfo[AtollError]]:
    """The block must raise `kind` with this code, and its text must name each of these values."""
    with pytest.raises(kind) as caught:
        yield caught
    text = str(caught.value)
    assert caught.value.code == code, f"{caught.value.code!r} instead of {code!r}: {text}"
    for value in named:
        assert str(value) in text, f"{value!r} is not named in: {text}"
