"""The search of sparse networks keeps the contract, and Algorithm 5's bookkeeping holds."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from atoll.clients import fresh
from atoll.config import resolve
from atoll.core.messages import Payload, Task, Tensors
from atoll.data import Federated
from atoll.errors import ConfigError
from atoll.federation.local import local_federation
from atoll.methods.moefl.individuals import Individual, inherited
from atoll.methods.moefl.ranking import Ranking
from atoll.methods.moefl.search import Moefl
from atoll.methods.moefl.settings import MoeflConfig
from atoll.methods.realtime import Realtime
from atoll.methods.realtime_config import RealtimeConfig
from atoll.rng import stream
from atoll.run.accounts import network_problems
from atoll.spaces.sparse import genes as sparse_genes
from atoll.spaces.sparse import space as sparse
from atoll.testing import MethodContract, ScriptedFederation, made_images, made_table, scripted
from atoll.training.calibration import statistics_form
from outcomes import outcome
from refusals import refused

QUICK: dict[str, Any] = {"rounds": 4, "finish": 0.0, "fitness_rounds": 2, "population": 4, "epochs": 1, "batch": 8}


class TestMoefl(MethodContract):
    method = "moefl"
    settings: ClassVar[dict[str, Any]] = {**QUICK, "rounds": 6, "finish": 0.33}  # two generations, two closing rounds

    def test_the_result_tells_connections_and_picks(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        run = self.baseline(tmp_path_factory)
        picks = [pick for candidate in run.result["candidates"] for pick in candidate["picks"]]
        assert sorted(picks) == ["high", "high1", "high2", "knee", "knee1", "knee2"]
        for candidate in run.result["candidates"]:
            whole = run.load_model(candidate["id"]).weights
            for name, mask in sparse.masks(candidate["architecture"]).items():
                assert not whole[name][~mask].any()
            assert 0 < candidate["objectives"]["connections"] <= candidate["objectives"]["params"]
        json.dumps(run.result, allow_nan=False)


class TestConvolutions(MethodContract):
    method = "moefl"
    settings: ClassVar[dict[str, Any]] = {**QUICK, "network": "cnn", "population": 2}

    def data(self) -> Federated:
        return made_images(clients=2, rows=12, side=6)

    # Each of its networks is larger than all of the other suite's together: the costlier promises are kept there.
    test_worker_count_does_not_matter = None  # type: ignore[assignment]
    test_resumed_equals_uninterrupted = None  # type: ignore[assignment]
    test_only_wire_bytes_are_exchanged = None  # type: ignore[assignment]


def search(generations: int, answer: Any = None, **settings: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """States and metrics of a short search."""
    data = made_table()
    config = MoeflConfig(**{**QUICK, "rounds": 2 * generations, **settings})
    method = Moefl(config, data.schema)
    federation = local_federation(data, 1, workers=0)
    if answer is not None:
        federation = ScriptedFederation(["a", "b"], answer, data.schema)  # type: ignore[assignment]
    states, metrics = [method.init(federation, stream(1, "init"))], []
    while not method.done(states[-1]):
        federation.begin(states[-1].round + 1)
        state, found = method.step(states[-1], federation, stream(1, "step", states[-1].round))
        states.append(state)
        metrics.append(found)
    return states, metrics


def names(rows: list[dict[str, Any]]) -> set[str]:
    return {row["name"] for row in rows}


def test_a_generation_trains_only_the_new() -> None:
    states, metrics = search(2)
    assert [found["in_training"] for found in metrics] == [8, 8, 4, 4]  # P and Q, then Q alone
    assert [state.round for state in states] == [0, 1, 2, 3, 4]
    assert len(states[2].parents) == 4 and not states[2].training
    kept = {row["name"]: row["objectives"] for row in states[2].parents}
    later = {row["name"]: row["objectives"] for row in states[4].parents}
    for name in kept.keys() & later.keys():
        assert later[name] == kept[name]
    assert names(states[3].training).isdisjoint(kept)


def test_the_closing_phase_trains_the_picks_with_a_falling_learning_rate() -> None:
    """Their error rises after the first closing round, so that is the one which is kept."""
    rates: list[tuple[str, float]] = []
    rounds: set[str] = set()

    def answer(task: Task) -> Payload:
        name = task.id.split(":")[1]
        if "part" in task.payload:
            return {"correct": {"finished": 9, "late": 7}.get(stage(), int(name[-1]) + 2)}
        rates.append((name, task.payload["lr"]))
        return {"weights": Tensors({key: array + 0.5 for key, array in task.payload["weights"].items()})}

    def stage() -> str:
        closing = len(metrics) - 2
        return "late" if closing > 0 else "finished" if closing == 0 else "search"

    data, metrics = made_table(), []
    method = Moefl(MoeflConfig(**{**QUICK, "rounds": 6, "finish": 0.6}), data.schema)  # two rounds and four
    federation = ScriptedFederation(["a", "b"], answer, data.schema)
    state = method.init(federation, stream(1, "init"))
    while not method.done(state):
        before = len(rates)
        state, found = method.step(state, federation, stream(1, "step", state.round))
        metrics.append(found)
        rounds = {name for name, _ in rates[before:]}
    assert [found.get("phase") for found in metrics] == [None, None, "final", "final", "final", "final"]
    assert rounds == {row["name"] for row in state.best} == {metrics[1]["high"]["key"], metrics[1]["knee"]["key"]}
    high = metrics[1]["high"]["key"]
    own = [rate for name, rate in rates if name == high][::2]  # two clients
    first = own[0]
    assert own == pytest.approx([first, first, first, *(first * (1 + np.cos(np.pi * k / 4)) / 2 for k in (1, 2, 3))])
    assert [found["error"] for found in metrics[2:]] == pytest.approx([0.1] * 4)
    (best,) = [row for row in state.best if row["name"] == high]
    (last,) = [row for row in state.finished if row["name"] == high]
    assert best["objectives"][0] == pytest.approx(0.1) and last["objectives"][0] == pytest.approx(0.3)
    candidates = method.results(state, federation, stream(1, "results"))
    assert {one.id for one in candidates} == rounds and not any(one.about for one in candidates)


def test_a_longer_run_goes_on_breeding_and_finishes_again() -> None:
    states, _ = search(2, rounds=6, finish=0.6)
    federation, state, phases = local_federation(made_table(), 1, workers=0), states[-1], []
    # Of the eight rounds that are added four breed.
    longer = Moefl(MoeflConfig(**{**QUICK, "rounds": 14, "finish": 0.4}), made_table().schema)
    while not longer.done(state):
        federation.begin(state.round + 1)
        state, found = longer.step(state, federation, stream(1, "step", state.round))
        phases.append(found.get("phase", "search"))
    assert phases == ["search"] * 4 + ["final"] * 4
    assert state.searched == 6 and state.generation == 4


@pytest.mark.parametrize(
    ("rounds", "finish", "closing"),
    [(48, 0.33, 16), (6, 0.33, 2), (10, 0.5, 6), (8, 0.0, 0), (7, 0.01, 1), (2, 0.33, 0)],
)
def test_whole_generations_come_before_the_closing_phase(rounds: int, finish: float, closing: int) -> None:
    settings = MoeflConfig(rounds=rounds, finish=finish, fitness_rounds=4 if rounds == 48 else 2)
    assert settings.closing == closing


def test_a_closing_phase_that_leaves_no_generation_is_refused() -> None:
    with refused(ConfigError, "phase-exceeds-rounds", "moefl.finish = 0.8", 7, "fitness_rounds = 4"):
        MoeflConfig(rounds=7, finish=0.8, fitness_rounds=4)


def test_all_means_that_parents_start_again() -> None:
    states, metrics = search(2, evaluate="all")
    assert [found["in_training"] for found in metrics] == [8, 8, 8, 8]
    assert names(states[2].parents) <= names(states[3].training)


def test_networks_improve_and_the_hypervolume_does_not_fall() -> None:
    _, metrics = search(5)
    volumes = [found["hypervolume"] for found in metrics if "hypervolume" in found]
    assert len(volumes) == 5 and all(0 <= volume <= 1 for volume in volumes)
    assert volumes[-1] > volumes[0]


def test_an_individual_survives_being_written_down() -> None:
    states, _ = search(1)
    for plain in states[-1].parents:
        again = Individual.from_plain(plain).to_plain()
        assert again.pop("weights") is plain["weights"]
        assert again == {key: value for key, value in plain.items() if key != "weights"}


def test_a_diverged_network_gets_the_worst_error_and_the_search_goes_on() -> None:
    def answer(task: Task) -> Payload:
        if "part" in task.payload:
            return {"correct": 5}
        value = np.nan if ":1o01:" in task.id else 0.5
        return {"weights": Tensors({name: np.full_like(a, value) for name, a in task.payload["weights"].items()})}

    states, metrics = search(2, answer)
    assert metrics[1]["diverged"] == ["1o01"]
    worst = {name: pair for name, *pair in metrics[1]["measured"]}["1o01"]
    assert worst[0] == 1.0 and worst[1] >= max(pair for _, _, pair in metrics[1]["front"])
    assert "1o01" not in names(states[-1].parents)
    assert all(row["objectives"][0] == 0.5 for row in states[-1].parents)


def test_everything_diverged_is_still_no_crash() -> None:
    def answer(task: Task) -> Payload:
        return {"weights": Tensors({name: np.full_like(a, np.nan) for name, a in task.payload["weights"].items()})}

    states, metrics = search(1, answer)
    assert metrics[-1]["error"] == 1.0 and metrics[-1]["hypervolume"] == 0.0
    assert len(states[-1].parents) == 4


def limited(**settings: Any) -> Moefl:
    return Moefl(MoeflConfig(**(QUICK | settings)), made_table().schema)


def test_picks_by_hand() -> None:
    """A front of five: the two of lowest error, and the two nearest to the ideal corner of the normalised front."""
    front = np.array([[0.10, 100], [0.11, 60], [0.20, 20], [0.40, 10], [0.90, 5], [0.95, 200]])
    found = Ranking().searched(front).picks
    assert (found["high1"], found["high2"], found["knee1"], found["knee2"]) == (0, 1, 2, 3)
    assert found["high"] == found["high1"] and found["knee"] == found["knee1"]
    assert set(Ranking().searched(np.array([[0.5, 1.0]])).picks.values()) == {0}


def test_picks_of_finished_networks_by_hand() -> None:
    """All stand in the front, by error. Of two the cheaper one is Knee, unless it is High; of more the knee is."""
    ranking = Ranking(max_connections=1)
    chosen = ranking.finished(np.array([[0.2, 10.0], [0.1, 100]]))
    assert chosen.front == [1, 0] and (chosen.picks["high"], chosen.picks["knee"]) == (1, 0)
    chosen = ranking.finished(np.array([[0.1, 10.0], [0.2, 100]]))
    assert chosen.front == [0, 1] and (chosen.picks["high"], chosen.picks["knee"]) == (0, 0)
    chosen = ranking.finished(np.array([[0.9, 5.0], [0.1, 100], [0.2, 20]]))
    assert chosen.front == [1, 2, 0] and (chosen.picks["high"], chosen.picks["knee"]) == (1, 2)
    assert set(ranking.finished(np.array([[0.5, 1.0]])).picks.values()) == {0}


def test_networks_beyond_a_limit_follow_all_others() -> None:
    table = np.array([[0.10, 100.0], [0.11, 60], [0.20, 20], [0.40, 10], [0.90, 5]])
    ranking = Ranking(max_error=0.3, max_connections=50)
    # Excess in shares: 100/50 - 1 = 1, 60/50 - 1 = 0.2, none, 0.4/0.3 - 1 = 1/3, 0.9/0.3 - 1 = 2.
    assert ranking.violations(table) == pytest.approx([1.0, 0.2, 0.0, 1 / 3, 2.0])
    front, picks = ranking.searched(table)
    assert front == [2] and set(picks.values()) == {2}
    assert ranking.select(table, 3) == [2, 1, 3] and ranking.select(table, 9) == [2, 1, 3, 0, 4]
    assert ranking.searched(table[[0, 1]]).front == [1], "the least excess where no network is within the limits"
    assert Ranking().violations(table).tolist() == [0.0] * 5
    assert ranking.exceeded(0.3, 50) == {}
    (told,) = network_problems({"about": ranking.exceeded(0.31, 60)}, "high", [])
    assert told.endswith("has an error of 0.3100, and max_error = 0.3; 60 connections, and max_connections = 50")
    other = Ranking(max_error=0.3, objective="weighted_f1").exceeded(0.31, 60)
    assert other == {"exceeds": "1 - weighted F1 = 0.3100, and max_error = 0.3"}


def test_the_hypervolume_is_of_networks_within_the_limits() -> None:
    """Of 100 connections: (1 - 0.2) (1 - 20 / 100) = 0.64; without limits the network of 60 adds 0.09 * 0.4."""
    table = np.array([[0.11, 60.0], [0.20, 20]])
    assert Ranking(max_connections=50).hypervolume(table, [1.0, 100]) == pytest.approx(0.64)
    assert Ranking().hypervolume(table, [1.0, 100]) == pytest.approx(0.64 + 0.09 * 0.4)
    assert Ranking(max_connections=10).hypervolume(table, [1.0, 100]) == 0.0


def test_crowding_by_logarithms() -> None:
    """On a front from 1 to 10,000 connections the one at 100 is in the middle only by logarithms."""
    table = np.array([[0.5, 1.0], [0.4, 100.0], [0.3, 9_000.0], [0.1, 10_000.0]])
    linear, logarithmic = (Ranking(crowding=kind).rank_and_crowding(table)[1] for kind in ("linear", "log"))
    assert linear[2] > linear[1] and logarithmic[1] > logarithmic[2]


def test_a_limit_below_the_smallest_network_is_refused() -> None:
    """6-1-3 has 9 connections and 4 biases. Of 6 and of 3 connections 55 % are removed, 3 and 1: an upload has 9."""
    schema = made_table().schema
    with refused(ConfigError, "impossible-limit", "max_connections = 8", "sends 9"):
        MoeflConfig(**(QUICK | {"max_connections": 8})).fitted(schema, 4)
    assert MoeflConfig(**(QUICK | {"max_connections": 9})).fitted(schema, 4).max_connections == 9
    assert limited(max_connections="standard").ranking.max_connections == limited().standard


@pytest.mark.parametrize("search", ["evolution", "random"])
def test_what_is_drawn_is_within_the_limit(search: str) -> None:
    method = limited(max_connections=300, search=search)
    born = method._drawn("1p", stream(1, "draw"))
    assert [one.model.name for one in born] == [f"1p{place:02d}" for place in range(len(born))]
    assert all(sparse.uploaded(one.model.architecture) <= 300 for one in born)
    assert all(sparse_genes.decode("mlp", one.chromosome).items() <= one.model.architecture.items() for one in born)
    free = limited(search=search)._drawn("1p", stream(1, "draw"))
    assert max(sparse.uploaded(one.model.architecture) for one in free) > 300


def test_weights_are_inherited_where_both_have_a_connection() -> None:
    base = {"space": "sparse", "model": "mlp", "input": [3], "classes": 2, "epsilon": 10**9}
    wide = fresh("parent", {**base, "hidden": [4], "graph": 1}, stream(1, "parent"))
    thin = fresh("child", {**base, "hidden": [2], "graph": 2}, stream(1, "child"))
    chromosome = sparse_genes.smallest("mlp")
    child = inherited(thin, [Individual(chromosome, wide)], stream(1, "draw")).whole()
    parent = wide.whole()
    for name, values in child.items():
        common = tuple(slice(size) for size in values.shape)
        there = parent[name][common]
        assert np.array_equal(values, np.where(there != 0, there, thin.whole()[name]))


def test_what_is_bred_inherits_from_its_own_parents(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn has none: it inherits from any survivor."""
    given: list[list[str]] = []
    monkeypatch.setattr(
        "atoll.methods.moefl.search.inherited",
        lambda child, parents, rng: given.append([one.model.name for one in parents]) or child,
    )
    search(2, inherit=True)
    assert len(given) == 4 and all(len(pair) == 2 for pair in given)
    assert len({name for pair in given for name in pair}) > 1
    given.clear()
    search(2, inherit=True, search="random")
    assert [len(survivors) for survivors in given] == [4] * 4


def test_halving_drops_the_worse_half() -> None:
    """Eight networks, each worse than the one before in both objectives. Selection needs four, and three parents are
    known: one of the eight would do, so the first four are trained further."""
    data = made_table()
    method = Moefl(MoeflConfig(**QUICK, halving=True), data.schema)
    drawn = [sparse_genes.random_chromosome("mlp", stream(1, "drawn", number)) for number in range(8)]
    born = method._born(drawn, "1o", stream(1, "born"))
    order = [3, 0, 7, 5, 1, 6, 2, 4]
    measured = [replace(one, objectives=(0.1 + rank / 10, 100.0 + rank)) for one, rank in zip(born, order, strict=True)]
    best = [f"1o{order.index(rank):02d}" for rank in range(8)]

    def left(number: int, known: int) -> list[str]:
        return [one.model.name for one in method._better_half(measured[:number], measured[:known])]

    assert left(8, 3) == sorted(best[:4]) and left(8, 0) == sorted(best[:4])
    assert len(left(4, 0)) == 4, "there are no others"
    assert len(left(4, 4)) == len(left(4, 3)) == 2 and len(left(2, 4)) == len(left(1, 4)) == 1
    assert all(one.objectives is None for one in method._better_half(measured, []))


def test_halving_is_successive() -> None:
    """After rounds 1, 2 and 4: 8 networks in the first generation, of which selection needs 4, then 4 offspring."""
    assert [MoeflConfig(rounds=n, fitness_rounds=n).halvings for n in (1, 2, 4, 5, 10)] == [
        [],
        [1],
        [1, 2],
        [1, 2, 4],
        [1, 2, 4, 8],
    ]
    _, metrics = search(1, halving=True, rounds=10, fitness_rounds=5)
    assert [found["in_training"] for found in metrics] == [4, 4, 4, 4, 4, 2, 1, 1, 1, 1]


def test_a_search_minimises_the_objective_that_it_is_given() -> None:
    """Nine rows of one class are right, the only row of another is wrong: error 0.1, balanced error 0.5."""
    confusion = np.array([[9, 0], [1, 0]])

    def answer(task: Task) -> Payload:
        if "keys" in task.payload:
            return {"confusion": np.stack([confusion] * len(task.payload["keys"]))}
        if "part" in task.payload:
            found: Payload = {"confusion": confusion}
            if "statistics" in task.payload:
                found["statistics"] = statistics_form(task.payload["architecture"])
            return found
        return {"weights": task.payload["weights"]}

    federation = ScriptedFederation(["a", "b"], answer, scripted.SCHEMA)
    moefl = Moefl(MoeflConfig(**QUICK, objective="balanced_error"), scripted.SCHEMA)
    state = moefl.init(federation, stream(1, "init"))
    for number in range(2):
        state, _ = moefl.step(state, federation, stream(1, "step", number))
    assert all(row["objectives"][0] == pytest.approx(0.5) for row in state.parents)
    settings: dict[str, Any] = {"population": 2, "widths": [2, 2], "stem": 2, "snapshots": False, "finish": 0.5}
    realtime = Realtime(RealtimeConfig(rounds=2, objective="balanced_error", **settings), scripted.SCHEMA)
    now = realtime.init(federation, stream(1, "init"))
    for number in range(2):  # a round of the search, and one of the closing phase
        now, found = realtime.step(now, federation, stream(1, "step", number))
        assert found["error"] == pytest.approx(0.5)
    assert found["phase"] == "final"


@pytest.mark.parametrize("settings", [{"search": "random"}, {"halving": True}, {"inherit": True, "crowding": "log"}])
def test_variants_run_and_resume(settings: dict[str, Any], tmp_path: Path) -> None:
    import atoll

    usual = QUICK | {"rounds": 8, "population": 4} | settings
    whole = atoll.search("moefl", made_table(), out=tmp_path / "whole", workers=0, **usual)
    half = atoll.search("moefl", made_table(), out=tmp_path / "half", workers=0, **usual | {"rounds": 4})
    longer = atoll.resume(half.path, rounds=8, data=made_table())
    assert outcome(longer) == outcome(whole)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"population": 1}, "population = 1"),
        ({"mutation": 1.5}, "mutation = 1.5"),
        ({"network": "rnn"}, "network = 'rnn'"),
        ({"fitnes": "test"}, "'fitness'"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        resolve({"method": "moefl", "data": {"name": "digits"}, "moefl": settings})


def test_generations_are_whole() -> None:
    with refused(ConfigError, "indivisible-rounds", "moefl.rounds = 7", "fitness_rounds = 5"):
        MoeflConfig(**{**QUICK, "rounds": 7, "fitness_rounds": 5})


def test_convolutions_need_images() -> None:
    data = made_table()
    with refused(ConfigError, "network-data-mismatch", "moefl.network = 'cnn'", "'mlp'"):
        MoeflConfig(**{**QUICK, "network": "cnn"}).fitted(data.schema, 4)


def test_networks_must_be_measured_on_something() -> None:
    data = made_table(split=(1.0, 0.0, 0.0))
    for fitness, code in (("validation", "no-validation-rows"), ("test", "no-test-rows")):
        method = Moefl(MoeflConfig(**{**QUICK, "fitness": fitness}), data.schema)
        with refused(ConfigError, code, "data.split"):
            method.init(local_federation(data, 1, workers=0), stream(1, "init"))
