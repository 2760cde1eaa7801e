"""Every exception Atoll raises on purpose.

    AtollError
    ├── UserError                 something typed or supplied is wrong        exit code 2
    │   ├── ConfigError             a setting: unknown, of the wrong type, impossible
    │   ├── DataError               a data set, file, partition or split
    │   ├── ArchitectureError       a network that cannot be built as described
    │   ├── SiteError               a federation's directory, a site's bundle, or the connection between them
    │   └── RunDirectoryError       a run directory that cannot be used as asked
    │       └── RunLocked             another process is using it
    ├── TooFewReplies             a round that cannot continue; the loop repeats it with other clients
    │   └── NotResumable            the cause is the run's settings, so resuming would not help
    ├── ExportError               an exported network does not answer as the original does
    ├── Paused                    the run stopped and can be resumed          exit code 3
    ├── RunDamaged                files of a run directory fail verification  exit code 4
    └── WireError                 bytes that are not a valid payload

A `UserError` is one line: the value, the rule, a hint. The command line prints it without a traceback, with its code.
The code is short and stable (`unknown-setting`): tests and documentation refer to it, so the wording can change.
A client's failure is never an exception on the server: it is a `Reply` with an `error`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class AtollError(Exception):
    """Base of everything Atoll raises on purpose. `code` is the stable short name of the problem, in kebab case."""

    exit_code = 1

    def __init__(self, text: str, *, code: str = "") -> None:
        super().__init__(text)
        self.code = code

    def lines(self) -> list[str]:
        """What the command line prints: one line, with the code."""
        return [f"{self} [{self.code}]" if self.code else str(self)]


class UserError(AtollError):
    """Something the user typed or supplied is wrong; the text names the value, the rule and a hint."""

    exit_code = 2


class ConfigError(UserError):
    """A setting is unknown, of the wrong type or impossible."""


class DataError(UserError):
    """A data set, file, partition or split cannot be used."""


class ArchitectureError(UserError):
    """A network cannot be built as described."""


class SiteError(UserError):
    """A federation's directory, a site's bundle or the connection between them cannot be used as asked."""


class RunDirectoryError(UserError):
    """A run directory cannot be used as asked."""


class RunLocked(RunDirectoryError):
    """Another process is using the run directory."""


class TooFewReplies(AtollError):
    """A round got too few valid replies to continue; the state is unchanged."""


class NotResumable(TooFewReplies):
    """Too few valid replies because of the run's own settings, so resuming the run would not help."""


class Paused(AtollError):
    """The run stopped after a checkpoint and can be resumed; `resumable` is False if it would fail again."""

    exit_code = 3

    def __init__(self, text: str, resumable: bool = True, *, code: str = "") -> None:
        super().__init__(text, code=code)
        self.resumable = resumable


class ExportError(AtollError):
    """An exported network does not answer as the original does; nothing was written."""


class RunDamaged(AtollError):
    """Files of a run directory fail verification, and no intact checkpoint remains."""

    exit_code = 4


class WireError(AtollError):
    """Bytes that are not a valid payload."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The hint of a message about an unknown name: the closest known name, then all of them."""
    choices = sorted(set(known))
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    hint = f"did you mean '{close[0]}'? " if close else ""
    return f"{hint}known: {', '.join(choices) if choices else 'none'}"
