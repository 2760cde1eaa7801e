"""Stop rules for every method: the `[stop]` table of an experiment.

A run ends with the first rule that is met, and its result says which. Rounds, errors, bytes and MACs are those of the
run's own events, so a resumed run stops where an uninterrupted one does; minutes are those of the clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from atoll.core.ledger import Account
from atoll.errors import ConfigError

NOTICEABLE = 1e-4  # a lower error than the best by less than this is no progress
PATIENCE = 10  # plateau = "auto"


class StopSettings(BaseModel):
    """None: no limit."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    rounds: int | None = Field(default=None, ge=1)  # fewer than the method's own, which schedules are made for
    accuracy: float | None = Field(default=None, gt=0, le=1)  # 1 minus the round's error, see docs/guide.md
    # Rounds in a row that measure an error, but no lower one; "auto": 10.
    plateau: Annotated[int, Field(ge=1)] | Literal["auto"] | None = None
    upload: int | None = Field(default=None, ge=1)  # bytes that all clients together have sent
    # MACs that all clients together have computed. A search of realtime, offline or moefl ends before them, with a
    # closing phase that fits; see `Method.within`.
    macs: int | None = Field(default=None, ge=1)
    minutes: float | None = Field(default=None, gt=0)  # of wall-clock time


@dataclass(frozen=True)
class Progress:
    """The lowest error of this phase so far, and for how many measurements it has not fallen. A checkpoint holds it.

    Another phase measures something else, so it begins again.
    """

    best: float = 1.0
    waited: int = 0
    phase: str | None = None
    cut: int = 0  # the last round of a search that `stop.macs` has ended; 0: it has not

    def after(self, metrics: Mapping[str, Any]) -> Progress:
        error, phase = metrics.get("error"), metrics.get("phase")
        if error is None:
            return self
        before = self if phase == self.phase else Progress(cut=self.cut)
        lower = error < before.best - NOTICEABLE
        best, waited = (error, 0) if lower else (before.best, before.waited + 1)
        return replace(before, best=best, waited=waited, phase=phase)


def reason_to_stop(
    rules: StopSettings, rounds: int, metrics: dict[str, Any], progress: Progress, total: Account, seconds: float
) -> str | None:
    """Why the run ends after this round, in words; None if it goes on."""
    error = metrics.get("error")
    if rules.rounds is not None and rounds >= rules.rounds:
        return f"stop.rounds = {rules.rounds}"
    if rules.accuracy is not None and error is not None and 1 - error >= rules.accuracy:
        return f"stop.accuracy = {rules.accuracy:g} reached: {1 - error:.4f}"
    patience = PATIENCE if rules.plateau == "auto" else rules.plateau
    if patience is not None and progress.waited >= patience:
        return f"stop.plateau = {patience} rounds without a lower error than {progress.best:.4f}"
    if rules.upload is not None and total.bytes_up >= rules.upload:
        return f"stop.upload = {rules.upload:,} bytes reached"
    if rules.macs is not None and total.client_macs >= rules.macs:
        return f"stop.macs = {rules.macs:,} reached"
    if rules.minutes is not None and seconds >= 60 * rules.minutes:
        return f"stop.minutes = {rules.minutes:g} reached"
    return None


def refuse_pointless(rules: StopSettings, rounds: int) -> None:
    """A limit that the method's own number of rounds makes meaningless."""
    if rules.rounds is not None and rules.rounds > rounds:
        raise ConfigError(
            f"stop.rounds = {rules.rounds}: the method has {rounds} rounds; raise its own, or lower this",
            code="conflicting-settings",
        )
