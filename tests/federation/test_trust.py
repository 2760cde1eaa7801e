"""The norm rule and client weights, by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import atoll
from atoll.algorithms.aggregation import GradientMean, Mean
from atoll.algorithms.robust import Rule
from atoll.config import resolve
from atoll.core.checks import Count, OnGraph, TensorsLike, from_plain, to_plain
from atoll.core.messages import ClientInfo, Payload, Reply, Schema, Task, Tensors
from atoll.errors import ConfigError, Paused
from atoll.federation.trust import NormRule, RobustSettings, Strikes, capped_shares, measured, returns_update
from atoll.run import launch
from atoll.run.reader import load
from atoll.testing import ScriptedFederation, made_table
from outcomes import outcome
from refusals import refused

SENT = Tensors({"w": np.ones((2, 2), np.float32), "b": np.zeros(2, np.float32)})
RETURNS = {"weights": TensorsLike.of(SENT, "values"), "correct": Count(5)}


def reply(client: str, w: float, b: float = 0.0, names: Sequence[str] = ("w", "b")) -> Reply:
    """New weights whose blocks differ by `w` and `b` from those that were sent."""
    changed = Tensors({name: SENT[name] + np.float32({"w": w, "b": b}[name]) for name in names})
    sent = SENT.slice(list(names))
    task = Task(client, client, "job", {"weights": sent}, returns={"weights": TensorsLike.of(sent, "values")})
    return Reply(task, {"weights": changed}, round=1)


def bad(replies: Sequence[Reply], held: int = 2**20) -> dict[str, str]:
    """The clients whose replies are rejected, and why; all replies come, in their order."""
    rejected: list[Reply] = []
    found = list(NormRule(rejected.append, held).passed(replies))
    assert [one.task.client for one in found] == [one.task.client for one in replies]
    assert [one for one in found if not one.ok] == rejected
    return {one.task.client: str(one.error) for one in rejected}


def test_the_size_of_an_update_by_hand() -> None:
    """Four weights changed by 3, two by 0: sqrt(4 * 9 / 6) in all. A bare change is measured as it is."""
    found = measured(reply("a", 3.0))
    assert found is not None
    assert sorted(found.blocks.values()) == [0.0, 3.0] and found.whole == pytest.approx(6**0.5) and found.nbytes == 24
    task = Task("a", "a", "job", {}, returns={"changes": [TensorsLike.of(SENT, "change")]})
    change = measured(Reply(task, {"changes": [SENT]}))
    assert change is not None and sorted(change.blocks.values()) == [0.0, 1.0]


def test_only_updates_are_measured() -> None:
    plain = Task("a", "a", "job", {"weights": SENT}, returns={"weights": TensorsLike.of(SENT)})
    assert not returns_update([plain]) and measured(Reply(plain, {"weights": SENT})) is None
    graph = OnGraph(TensorsLike.of(SENT).model, {}, update="values")
    assert returns_update([plain, Task("b", "b", "job", {}, returns={"inner": [graph]})])


def test_a_hundred_times_the_median_is_the_limit() -> None:
    """Both blocks change alike, so the median of the whole is that of the blocks: 2."""
    usual = [reply("a", 1.0, 1.0), reply("b", 2.0, 2.0), reply("c", 3.0, 3.0), reply("d", 2.0, 2.0)]
    assert bad([*usual, reply("large", 199.0, 199.0)]) == {}
    assert list(bad([*usual, reply("larger", 201.0, 2.0)])) == ["larger"]


@pytest.mark.parametrize("place", range(5))
def test_the_place_of_a_bad_update_does_not_matter(place: int) -> None:
    replies = [reply(name, 1.0, 1.0) for name in "abcd"]
    replies.insert(place, reply("bad", 1.0, 3e38))
    found = bad(replies)
    assert list(found) == ["bad"] and found["bad"].startswith("rejected, norm: ") and "'b'" in found["bad"]


def test_a_block_of_one_client_is_compared_with_the_updates_of_all() -> None:
    others = [reply(name, 1.0, names=["w"]) for name in "abc"]
    assert list(bad([*others, reply("bad", 1.0, 500.0)])) == ["bad"]
    assert bad([*others, reply("good", 1.0, 50.0)]) == {}


def test_a_block_that_changes_more_than_others_is_usual_where_it_does_so_for_most() -> None:
    assert bad([reply("a", 0.001, 1.0), reply("b", 0.001, 2.0), reply("c", 0.001, 150.0)]) == {}


@pytest.mark.parametrize(
    ("earlier", "accepted", "rejected"),
    [((), 100.0, 150.0), ((0.5, 2.0, 3e30), 200.0, 300.0), ((1e-9,), 1.0, 1.5), ((1e-9, 0.0), 1.0, 3e38)],
)
def test_two_updates_are_compared_with_earlier_ones(
    earlier: tuple[float, ...], accepted: float, rejected: float
) -> None:
    """All blocks change alike. The usual size is the median of earlier ones, 0.01 at least, and 1 without any."""
    rule = NormRule(lambda _: None, earlier=earlier)
    found = list(rule.passed([reply("a", accepted, accepted), reply("b", rejected, rejected)]))
    assert [one.ok for one in found] == [True, False] and str(found[1].error).startswith("rejected, norm: ")
    assert rule.sizes == [*earlier, pytest.approx(accepted)]


def test_what_an_exchange_leaves_for_later_ones() -> None:
    """Its median, or the sizes of its few accepted updates; the last twenty of all."""
    rule = NormRule(lambda _: None, earlier=[1.0] * 19)
    list(rule.passed([reply("a", 1.0, 1.0), reply("b", 5.0, 5.0), reply("c", 3e38, 3e38)]))
    assert rule.sizes == [1.0] * 19 + [5.0]
    later = NormRule(lambda _: None, earlier=rule.sizes)
    list(later.passed([reply("a", 2.0, 2.0)]))
    assert later.sizes == [1.0] * 18 + [5.0, 2.0]


def test_a_model_is_compared_with_itself() -> None:
    """Two models in one exchange. Where most clients diverge from the start of one, none of them is out of proportion;
    a single one that does is."""
    start = Tensors({name: array + 2 for name, array in SENT.items()})

    def other(client: str, by: float) -> Reply:
        task = Task(client, client, "job", {"weights": start}, returns={"weights": TensorsLike.of(start, "values")})
        return Reply(task, {"weights": Tensors({n: a + np.float32(by) for n, a in start.items()})}, round=1)

    calm = [reply(name, 0.01, 0.01) for name in "abcdefg"]
    assert bad([*calm, *(other(name, 1e4) for name in "abc"), other("d", 0.01)]) == {}
    assert list(bad([*calm, *(other(name, 0.01) for name in "abc"), other("d", 1e4)])) == ["d"]


def test_two_clients_a_round_are_held_to_what_was_usual_before_also_after_a_pause(tmp_path: Path) -> None:
    """Two of five train in a round. From round 4 on one client sends updates a thousand times as long, about 30: they
    are rejected for those of rounds 1 to 3, of which a resumed run knows."""
    data, rule = made_table(clients=5), {"kind": "scale", "clients": ["client-01"], "factor": 1000.0, "first": 4}
    raw = {"method": "fedavg", "data": {"name": "in-memory"}, "engine": {"workers": 0}, "faults": {"rule": [rule]}}
    experiment = resolve({**raw, "fedavg": {"rounds": 8, "hidden": [4], "fraction": 0.4}})
    whole = launch.start(experiment, tmp_path / "whole", data=data)
    assert whole.clients["client-01"]["rejected"]["norm"] >= 1
    stopped = tmp_path / "stopped"
    with refused(Paused, "run-stopped"):
        launch.start(experiment, stopped, data=data, stop=lambda: len(load(stopped).rounds) >= 3)
    assert outcome(atoll.resume(stopped, data=data)) == outcome(whole)


def test_unchanged_updates_are_compared_with_one() -> None:
    assert list(bad([reply("a", 0.0), reply("b", 0.0), reply("c", 0.0), reply("d", 101.0)])) == ["d"]
    assert bad([reply("a", 0.0), reply("b", 0.0), reply("c", 0.0), reply("d", 99.0)]) == {}


def test_beyond_its_memory_the_rule_compares_with_what_came_before() -> None:
    """An update has 24 bytes: three are held, the following are compared one by one."""
    replies = [*(reply(name, 1.0, 1.0) for name in "abcd"), reply("bad", 1000.0), reply("e", 1.0, 1.0)]
    assert list(bad(replies, held=50)) == ["bad"]
    rule = NormRule(lambda _: None, 50)
    arrived = iter(replies)
    stream = rule.passed(arrived)
    next(stream)
    assert next(arrived).task.client == "d"


def test_failures_pass_and_do_not_count() -> None:
    failed = Reply(reply("x", 1.0).task, error="broken")
    rule = NormRule(lambda _: None)
    found = list(rule.passed([failed, reply("a", 1.0), failed]))
    assert [one.ok for one in found] == [False, True, False] and len(rule.sizes) == 1


def clipped(client: str, w: float, longest: float = 4.0) -> Reply:
    """An update of length 2 x `w`: four weights change by `w`."""
    found = reply(client, w)
    check = TensorsLike.of(SENT, "values", longest)
    return replace(found, task=replace(found.task, returns={"weights": check}))


def test_an_update_beyond_its_clip_is_rejected_also_alone() -> None:
    assert bad([clipped("a", 2.0), clipped("b", 2.01)]) == {}
    found = bad([clipped("a", 2.1)])
    assert found == {"a": "rejected, norm: an update of length 4.2, where its clip allows 4"}
    assert list(bad([clipped("a", 3e38), clipped("b", 1.0)])) == ["a"]


def test_what_is_beyond_its_clip_does_not_count_for_what_is_usual() -> None:
    """Three of five send 1e6, beyond their clips: the median is then that of the two others and of 300."""
    wrong = [clipped(name, 1e6) for name in "abc"]
    assert list(bad([*wrong, reply("d", 1.0), reply("e", 1.0), reply("f", 300.0)])) == ["a", "b", "c", "f"]


def test_the_limit_of_a_clip_is_saved_with_its_task() -> None:
    check = TensorsLike.of(SENT, "values", 4.0)
    assert from_plain(to_plain(check)).longest == 4.0


def answering(values: dict[str, float]) -> Any:
    def answer(task: Task) -> Payload:
        sent = task.payload["weights"]
        return {"weights": Tensors({n: a + np.float32(values[task.client]) for n, a in sent.items()}), "correct": 1}

    return answer


def test_an_exchange_rejects_counts_and_names() -> None:
    values = {"a": 1.0, "b": 2.0, "c": 1.0, "bad": -3e38, "d": 1.5}
    federation = ScriptedFederation(list(values), answering(values))
    federation.begin(1)
    replies = federation.collect([Task(n, n, "job", {"weights": SENT}, 7, RETURNS) for n in values])
    assert [one.task.client for one in replies] == ["a", "b", "c", "d"]
    assert [one.task.client for one in replies.failures] == ["bad"]
    assert federation.ledger.current.replies == {"used": 4, "late": 0, "stale": 0, "rejected": 1, "failed": 0}
    account = federation.ledger.clients["bad"]
    assert account.rejected == {"norm": 1} and account.used == 0
    assert next(iter(federation.largest_updates())) == "bad"
    federation.begin(2)
    assert federation.largest_updates() == {}


def struck(**outcomes: str) -> dict[str, str]:
    """Per client its replies: g for a good one, r for a rejected one, f for a failed one."""
    replies = []
    for client, letters in outcomes.items():
        errors = {"g": None, "r": "rejected, count: 7 is outside 0 to 5", "f": "broken"}
        replies += [Reply(Task(client, client, "job", {}), error=errors[letter]) for letter in letters]
    strikes = Strikes()
    assert list(strikes.passed(replies)) == replies
    return strikes.found


def test_a_strike_is_an_exchange_in_which_all_replies_of_a_client_were_rejected() -> None:
    assert struck(a="g", b="gg", c="r") == {"c": "count: 7 is outside 0 to 5"}
    assert list(struck(a="g", b="rr", c="rg", d="f")) == ["b"]
    assert struck(a="g", b="f") == {}


def test_what_happens_to_most_clients_is_the_fault_of_none() -> None:
    assert list(struck(a="g", b="r")) == ["b"]
    assert struck(a="g", b="r", c="r") == struck(a="r") == struck(a="r", b="f") == {}


def run_of(federation: ScriptedFederation, values: Sequence[str], rounds: range) -> list[list[str]]:
    """The clients whose replies are good, round by round."""
    good = []
    for number in rounds:
        federation.begin(number)
        tasks = [Task(n, n, "job", {}, returns={"value": Count(5)}) for n in values]
        good.append([one.task.client for one in federation.collect(tasks)])
    return good


def test_a_client_is_set_aside_after_its_strikes_also_after_a_resume() -> None:
    names = ["a", "b", "bad"]

    def federation() -> ScriptedFederation:
        made = ScriptedFederation(names, lambda task: {"value": 7 if task.client == "bad" else 1})
        made.robust = RobustSettings(strikes=2)
        return made

    one = federation()
    assert run_of(one, names, range(1, 3)) == [["a", "b"]] * 2
    assert one.newly_set_aside() == {"bad": "2 strikes; the last one: count: 7 is outside 0 to 5"}
    assert one.newly_set_aside() == {}
    account = one.ledger.clients["bad"]
    assert (account.strikes, account.set_aside, account.rejected) == (2, 2, {"count": 2})
    assert run_of(one, names, range(3, 5)) == [["a", "b"]] * 2
    assert sum(task.client == "bad" for task in one.tasks) == 2
    assert one.ledger.clients["bad"].asked == 2 and one.newly_set_aside() == {}
    other = federation()
    other.restore(one.snapshot())
    other.ledger.restore(one.ledger.to_plain())
    run_of(other, names, range(5, 7))
    assert {task.client for task in other.tasks} == {"a", "b"}


def test_without_a_number_of_strikes_every_client_is_asked() -> None:
    made = ScriptedFederation(["a", "bad"], lambda task: {"value": 7 if task.client == "bad" else 1})
    made.robust = RobustSettings(strikes=0)
    run_of(made, ["a", "bad"], range(1, 9))
    assert len(made.tasks) == 16 and made.ledger.clients["bad"].strikes == 8


def test_the_share_of_rows_that_counts() -> None:
    """The median of 4, 6, 10 and 1000 is 8: of 1000 rows 80 count."""
    schema = Schema("table", (2,), ("a", "b"))
    infos = [ClientInfo(str(n), {"train": n, "validation": 0, "test": 0}, schema) for n in (4, 6, 10, 1000)]
    assert capped_shares(infos) == {"1000": 0.08}
    assert capped_shares([]) == {}


def test_robust_rules_are_refused_with_two_clients() -> None:
    RobustSettings().refuse_too_few(1, 1)
    RobustSettings(models="median", fitness="median").refuse_too_few(3, 3)
    RobustSettings(fitness="median").refuse_too_few(5, 2)
    given: list[dict[str, Any]] = [{"models": "median"}, {"clip": 2.0}, {"fitness": "median"}]
    for settings in given:
        (name,) = settings
        with refused(ConfigError, "too-few-clients", f"robust.{name}", "2 clients", "3"):
            RobustSettings(**settings).refuse_too_few(2, 2)
    with refused(ConfigError, "too-few-clients", "robust.models", "2 of 5 clients"):
        RobustSettings(models="median").refuse_too_few(5, 2)


@pytest.mark.parametrize("settings", [{"fedavg": {"fraction": 0.4}}, {"engine": {"quorum": 0.4}}])
def test_robust_rules_are_refused_where_a_round_has_two_clients(tmp_path: Path, settings: dict[str, Any]) -> None:
    own = {"hidden": [4], "rounds": 1, **settings.get("fedavg", {})}
    more = {"robust": {"models": "median"}, "engine": {"workers": 0, **settings.get("engine", {})}}
    with refused(ConfigError, "too-few-clients", "robust.models", "2 of 5 clients"):
        atoll.search("fedavg", made_table(clients=5), out=tmp_path / "run", settings=more, **own)


@pytest.mark.parametrize("rule", ["trimmed_mean", "median", "geometric_median"])
def test_a_federation_averages_by_its_settings(rule: Rule) -> None:
    federation = ScriptedFederation(["a"], answering({}))
    assert isinstance(federation.mean(SENT), Mean) and isinstance(federation.gradient_mean(), GradientMean)
    federation.robust = RobustSettings(models=rule)
    mean = federation.mean(SENT)
    for value in (1.0, 1.0, 1.0, 1.0, -1e6):
        mean.add(Tensors({name: array + np.float32(value) for name, array in SENT.items()}), 10**6)
    assert np.allclose(mean.result()["w"], 2.0, atol=1e-3)
