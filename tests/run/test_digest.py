"""A run reduced to what pages show, with numbers that can be checked by hand."""

from __future__ import annotations

import math
from typing import Any

from atoll.run.accounts import clients_so_far
from atoll.run.digest import FRONTS, MOST_SERIES, TIMELINE, RunDigest, scalars
from page_runs import event, front_metrics, ledger, simulated_tasks


def test_every_finite_number_of_the_metrics_is_a_series() -> None:
    metrics = {"error": 0.25, "high": {"key": "12", "macs": 7}, "networks": {"a": {"accuracy": 1}}, "phase": "final"}
    metrics |= {"lost": math.nan, "huge": 10**400, "flag": True, "front": [["1", 0.5, 3.0]]}
    assert dict(scalars(metrics)) == {"error": 0.25, "high.macs": 7.0, "networks.a.accuracy": 1.0}


def test_sums_and_series() -> None:
    digest = RunDigest.of(event(number, {"error": 0.5 / number}) for number in (1, 2, 4))
    assert list(digest.series["error"]) == [(1, 0.5), (2, 0.25), (4, 0.125)]
    assert (digest.rounds, digest.round) == (3, 4)
    assert digest.total.bytes_up == 3000 and digest.total.replies["used"] == 18
    assert list(digest.costs["client_macs"])[-1] == (4, 50_000)
    assert digest.seconds.last == 2.0


def failed(number: int, attempt: int, **clients: Any) -> dict[str, Any]:
    return {"round": number, "failed": "too few", "attempt": attempt, "clients": clients}


def test_accounts_are_those_of_the_reader() -> None:
    lost = {"rounds": 1, "asked": 2, "failed": {"no reply": 2}}
    events = [event(1, {}), failed(2, 1, north=lost), failed(2, 2, north=lost), event(2, {}), failed(3, 1, north=lost)]
    digest = RunDigest.of(events)
    assert digest.clients == clients_so_far(events), "attempts of a round are part of the one that succeeds"
    assert digest.failed_attempts == 3 and digest.failures[-1].round == 3
    assert digest.clients["north"] == {"asked": 6, "used": 4, "rounds": 3, "failed": {"no reply": 2}, "idle": 0}


def test_fronts_are_kept_evenly_with_the_first_and_the_last() -> None:
    digest = RunDigest()
    for number in range(1, 1001):
        digest.add(event(number, front_metrics(number)))
        assert digest.fronts[-1].round == number and digest.fronts[0].round == 1
        assert len(digest.fronts) <= FRONTS
    gaps = {b.round - a.round for a, b in zip(digest.fronts, digest.fronts[1:-1], strict=False)}
    assert gaps == {16}, "every sixteenth"
    assert digest.fronts[-1].picks == {"high": "30", "knee": "21"}
    assert digest.fronts[-1].networks[1][0] == "21" and digest.fronts[-1].networks[1][1][1] == 4000.0


def test_a_final_training_adds_no_front_but_a_phase() -> None:
    events = [event(1, {**front_metrics(1), "phase": "search"}), event(2, {**front_metrics(2), "phase": "final"})]
    digest = RunDigest.of(events)
    assert [front.round for front in digest.fronts] == [1] and digest.phases == [(1, "search"), (2, "final")]


def test_moments_of_tasks_are_kept_of_the_last_rounds_only() -> None:
    digest = RunDigest.of(simulated_tasks(20))
    assert [one["round"] for one in digest.timeline] == list(range(13, 21)) and len(digest.timeline) == TIMELINE
    # Replies after 6 and 7 seconds; the third never came.
    assert digest.latencies["longest"].last == 7.0 and digest.latencies["mean"].last == 6.5
    assert digest.total.simulated_seconds == 200.0


def test_a_method_from_outside_cannot_fill_the_memory() -> None:
    digest = RunDigest.of(event(number, {f"n{number}-{place}": 1.0 for place in range(50)}) for number in range(1, 50))
    assert len(digest.series) == MOST_SERIES


def test_iterations_of_a_search_by_pruning() -> None:
    metrics = {"iteration": 3, "round_in_iteration": 1, "candidates": {"0.0": {"accuracy": 0.5}, "1.0": {}}}
    ended = {
        **metrics,
        "round_in_iteration": 2,
        "network": "m3",
        "chosen": "0.0",
        "resources": {"macs": 10},
        "error": 0.5,
    }
    digest = RunDigest.of([event(1, metrics), event(2, ended)])
    assert digest.iterations[3][0] == {"round": 1, "accuracy": {"0.0": 0.5}}
    assert digest.chosen[3]["network"] == "m3" and digest.chosen[3]["resources"] == {"macs": 10}


def test_an_event_without_a_ledger_is_taken_as_it_is() -> None:
    digest = RunDigest.of([{"round": 1, "metrics": {"error": 0.5}}])
    assert digest.rounds == 1 and digest.total.tasks == 0 and ledger()["bytes_up"] == 1000
