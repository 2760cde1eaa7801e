"""Searches with a closing phase that are cut in it and resumed, and that are made longer after it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import atoll
from atoll.errors import ConfigError
from atoll.testing import made_table
from outcomes import outcome
from refusals import refused

# Six rounds, of which the last two finish the picks; four more then end with two.
SETTINGS: dict[str, dict[str, Any]] = {
    "realtime": {"rounds": 6, "finish": 0.4, "population": 3, "widths": [4, 4], "batch": 8},
    "moefl": {"rounds": 6, "finish": 0.4, "population": 3, "fitness_rounds": 2, "epochs": 1, "batch": 8},
}


class Cut:
    """A watcher that ends the program after a round, as a kill does."""

    def __init__(self, last: int) -> None:
        self.last = last

    def round_done(self, number: int, *_: Any) -> None:
        if number == self.last:
            raise KeyboardInterrupt

    def round_failed(self, *_: Any) -> None: ...


@pytest.mark.parametrize("method", SETTINGS)
def test_cut_in_the_closing_phase_and_in_what_was_added(method: str, tmp_path: Path) -> None:
    settings, data = SETTINGS[method], made_table(clients=3, rows=16)
    whole = atoll.search(method, data, out=tmp_path / "whole", workers=0, **settings)
    assert [event["metrics"].get("phase", "search") for event in whole.rounds] == ["search"] * 4 + ["final"] * 2
    assert whole.result["hypervolume"] == whole.rounds[3]["metrics"]["hypervolume"], "that of the search"
    with pytest.raises(KeyboardInterrupt):
        atoll.search(method, data, out=tmp_path / "cut", workers=0, watcher=Cut(5), **settings)
    again = atoll.resume(tmp_path / "cut", data=data)
    assert outcome(again) == outcome(whole)

    longer = atoll.resume(whole.path, rounds=10, data=data)
    phases = [event["metrics"].get("phase", "search") for event in longer.rounds[6:]]
    assert phases == ["search", "search", "final", "final"]
    for last in (7, 9):  # in the search that was added, and in its closing phase
        with pytest.raises(KeyboardInterrupt):
            atoll.resume(tmp_path / "cut", rounds=10, data=data, watcher=Cut(last))
    assert outcome(atoll.resume(tmp_path / "cut", data=data)) == outcome(longer)


def test_rounds_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    data = made_table(clients=3, rows=16)
    settings = SETTINGS["moefl"] | {"finish": 0.0, "rounds": 2}
    run = atoll.search("moefl", data, out=tmp_path / "run", workers=0, **settings)
    with refused(ConfigError, "indivisible-rounds", "moefl.rounds = 3"):
        atoll.resume(run.path, rounds=3, data=data)
