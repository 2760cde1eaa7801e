"""A round by hand: who gets what, who is refused, what travels, which network is chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.algorithms.neat.coding import decode, encode
from atoll.algorithms.neat.island import Island, new_island
from atoll.algorithms.neat.polish import Polish
from atoll.algorithms.neat.population import OUTPUTS_FROM, population_from_rows
from atoll.algorithms.neat.scoring import FIXED_POINT, Readout, soft_confusions
from atoll.algorithms.neat.settings import NeatSettings
from atoll.api import search
from atoll.config import resolve
from atoll.data import Federated
from atoll.errors import ConfigError, DataError, Paused
from atoll.federation.local import local_federation
from atoll.methods.nevofed import clients as nevofed
from atoll.methods.nevofed import search as nevofed_search
from atoll.methods.nevofed.refinement import soft_psi, tuning_of
from atoll.methods.nevofed.search import NEvoFed, NEvoFedConfig
from atoll.rng import stream
from atoll.testing import made_table
from atoll.training.metrics import weighted_f1
from refusals import refused

ISLANDS: dict[str, Any] = {"keep": "last", "patience": 0, "refine": 0.0, "polish": 0.0}  # the paper's search


def method(data: Federated, **settings: Any) -> NEvoFed:
    plain = {"rounds": 3, "population": 10, **ISLANDS}
    raw = {"method": "nevofed", "data": {"name": "in-memory"}, "nevofed": plain | settings}
    config = resolve(raw).settings.fitted(data.schema, len(data.names))
    assert isinstance(config, NEvoFedConfig)
    return NEvoFed(config, data.schema)


def test_populations_stay_and_only_the_best_travel() -> None:
    data = made_table(clients=3)
    server = method(data)
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        state, metrics = server.step(server.init(federation, stream(1)), federation, stream(1, "round"))
        assert list(state.bests) == data.names and metrics["clients"] == 3 and metrics["failed"] == {}
        memory = federation.snapshot()["memory"]
        for name in data.names:
            island = Island.from_plain(memory[name]["island"])
            assert len(island.population) == 10 and island.generation == 1
            own = encode(island.best, server.settings.inputs, server.settings.outputs)
            others = [code for other, code in state.bests.items() if other != name]
            # After the visit the best is the client's own, or a guest that does better here.
            assert any(np.array_equal(own, code) for code in [state.bests[name], *others])
        account = federation.ledger.current
        assert account.tasks == 6 and account.bytes_up < 6 * 1500
        assert metrics["genome_bytes"] < metrics["genome_json_bytes"] / 4


def test_a_best_that_did_not_change_is_not_sent_again() -> None:
    data = made_table(clients=3)
    server = method(data)
    codes = {name: encode(constant(number), 6, 3) for number, name in enumerate(data.names)}
    down = []
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        state = server.init(federation, stream(1))
        state, _ = server.step(state, federation, stream(1, "round"))
        for number in (2, 3):
            federation.begin(number)
            server._exchange({name: {"genome": code} for name, code in codes.items()}, federation.clients(), federation)
            down.append(federation.ledger.current.bytes_down)
    assert down[0] - down[1] == 3 * sum(len(code) for code in codes.values()) - sum(len(c) for c in codes.values())


def constant(answer: int, classes: int = 3) -> Any:
    """A network that always answers the same class."""
    rows = [[OUTPUTS_FROM + place, 5.0 if place == answer else -5.0, 1.0, 0, 0] for place in range(classes)]
    return population_from_rows([rows], [[]])


def test_the_global_model_is_the_best_by_the_mean_over_clients() -> None:
    """Client A holds classes 0, 0, 0, 1; B holds 1, 1, 1, 1, 0, 0: always answering 0 or 1 can be reckoned."""
    y = np.array([0, 0, 0, 1, 1, 1, 1, 1, 0, 0])
    x = np.zeros((10, 2), np.float32)
    data = Federated.from_arrays(x, y, ["a"] * 4 + ["b"] * 6, split=(1.0, 0.0, 0.0))
    server = method(data)
    codes = [encode(constant(answer, 2), 2, 2) for answer in (0, 1)]
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        state = replace(server.init(federation, stream(1, "x")), bests=dict(zip("ab", codes, strict=True)))
        chosen = server._global(state, federation)
        found = server._evaluate(codes, federation.clients(), "train", federation, test_evaluation=False)
    psi = np.mean([server.fitness(counts) for counts in found.values()], axis=0)
    zero = (weighted_f1(np.array([[3, 0], [1, 0]])) + weighted_f1(np.array([[2, 0], [4, 0]]))) / 2
    one = (weighted_f1(np.array([[0, 3], [0, 1]])) + weighted_f1(np.array([[0, 2], [0, 4]]))) / 2
    assert psi.tolist() == pytest.approx([zero, one]) and np.array_equal(chosen, codes[int(one > zero)])


@pytest.mark.parametrize("fault", ["circle", "nan", "huge", "truncated"])
def test_a_bad_genome_from_a_client_is_rejected_and_the_round_goes_on(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = made_table(clients=3)
    server, victim = method(data), data.names[1]
    honest = nevofed.JOBS["update"]

    def spoilt(payload: Any, client: Any) -> Any:
        answer = honest(payload, client)
        if client.data.name == victim:
            code = answer["genome"].copy()
            if fault == "nan":
                code[6:10] = (0, 0, 192, 127)
            elif fault == "huge":
                code[2:4] = 255
            elif fault == "truncated":
                code = code[:-1]
            else:
                code = encode(looped(), 6, 3)
            answer["genome"] = code
        return answer

    monkeypatch.setitem(nevofed.JOBS, "update", spoilt)
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        state, metrics = server.step(server.init(federation, stream(1)), federation, stream(1, "round"))
        assert victim not in state.bests and len(state.bests) == 2
        assert metrics["failed"][victim].startswith("rejected, genome: ")
        assert federation.ledger.current.replies["rejected"] == 1
        assert victim not in federation.snapshot()["memory"]


def looped() -> Any:
    rows = [[OUTPUTS_FROM + place, 0.0, 1.0, 0, 0] for place in range(3)]
    one, two = (1 << 63) + 1, (1 << 63) + 2
    rows += [[name, 0.0, 1.0, 0, 0] for name in (one, two)]
    connections = [[one, two, 1.0, True], [two, one, 1.0, True], [two, OUTPUTS_FROM, 1.0, True]]
    return population_from_rows([rows], [connections])


def one_class_data() -> Federated:
    """Client b has rows of one class only."""
    x = stream(1, "rows").standard_normal((40, 2)).astype(np.float32)
    y = np.array([0, 1] * 10 + [1] * 20)
    return Federated.from_arrays(x, y, ["a"] * 20 + ["b"] * 20, class_names=("calm", "busy"))


def test_a_client_with_one_class_says_so_and_the_others_go_on() -> None:
    data = one_class_data()
    for rule, expected in (("refuse", ["a"]), ("use", ["a", "b"])):
        server = method(data, one_class=rule)
        with local_federation(data, 1, 0) as federation:
            federation.begin(1)
            state, metrics = server.step(server.init(federation, stream(1)), federation, stream(1, "round"))
        assert list(state.bests) == expected
        assert ("'busy'" in str(metrics["failed"].get("b"))) == (rule == "refuse")


def test_a_client_that_never_took_part_is_named_at_the_end(tmp_path: Path) -> None:
    """It only evaluates the finished networks, which is no part of the search."""
    run = search("nevofed", one_class_data(), out=tmp_path / "run", rounds=2, workers=0, population=6, **ISLANDS)
    own = run.clients["b"]
    assert (own["asked"], own["used"], own["idle"]) == (2, 0, 0) and sum(own["failed"].values()) == 2
    assert "client 'b' never took part: of 2 tasks 2 failed" in run.problems[0] and "'busy'" in run.problems[0]
    assert "b" in run.candidate("global")["clients"]


def test_a_federation_of_such_clients_pauses_with_the_reason(tmp_path: Path) -> None:
    x = np.zeros((20, 2), np.float32)
    data = Federated.from_arrays(x, np.array([0] * 10 + [1] * 10), ["a"] * 10 + ["b"] * 10)
    with pytest.raises(Paused, match="class"):
        search("nevofed", data, out=tmp_path / "run", rounds=2, workers=0, population=6, **ISLANDS)


def test_constant_features_do_no_harm_and_have_no_importance(tmp_path: Path) -> None:
    rng = stream(3, "rows")
    x = np.stack([rng.standard_normal(120), np.full(120, 7.0)], axis=1).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    data = Federated.from_arrays(x, y, np.arange(120) % 2, scale="federated")
    run = search("nevofed", data, out=tmp_path / "run", rounds=6, workers=0, population=30, **ISLANDS)
    best = run.result["candidates"][0]
    assert best["objectives"]["test_f1"] > 0.9
    importance = best["about"]["importance"]
    assert importance["0"] > 0.3 and importance.get("1", 0.0) == 0.0
    assert {event["metrics"]["constant_features"] for event in run.rounds} == {1}


def test_missing_features_are_refused_or_filled() -> None:
    x = np.array([[1.0], [np.nan], [3.0], [4.0]], np.float32)
    with pytest.raises(DataError):
        Federated.from_arrays(x, np.array([0, 1, 0, 1]), [0, 0, 0, 0], split=(1.0, 0.0, 0.0))
    data = Federated.from_arrays(x, np.array([0, 1, 0, 1]), [0, 0, 0, 0], split=(1.0, 0.0, 0.0), missing="mean")
    assert np.isfinite(data.client(data.names[0]).part("train")[0]).all()


def test_results_hold_the_global_network_and_every_clients_own(tmp_path: Path) -> None:
    data = made_table(clients=3, rows=40)
    run = search("nevofed", data, out=tmp_path / "run", rounds=4, workers=0, population=20, test_every=2)
    found = run.result["candidates"]
    assert [c["id"] for c in found] == ["global", *(f"personal-{name}" for name in data.names)]
    assert list(found[0]["clients"]) == data.names
    mean = np.mean([figures["test_f1"] for figures in found[0]["clients"].values()])
    assert found[0]["objectives"]["test_f1"] == pytest.approx(mean)
    assert all(list(own["clients"]) == [name] for own, name in zip(found[1:], data.names, strict=True))
    assert [("test_f1" in event["metrics"]) for event in run.rounds] == [False, True, False, True]


def test_a_genome_beyond_the_limits_cannot_be_bred() -> None:
    data = made_table(clients=2)
    server = method(data, max_hidden=1, max_connections=6, node_add=1.0, connection_add=1.0, rounds=6)
    with local_federation(data, 1, 0) as federation:
        state = server.init(federation, stream(1))
        for number in range(1, 6):
            federation.begin(number)
            state, metrics = server.step(state, federation, stream(1, number))
            assert metrics["failed"] == {}
        for code in state.bests.values():
            genome = decode(code, server.limits)
            assert len(genome.node) <= 4 and len(genome.source) <= 6


@pytest.mark.parametrize(
    ("settings", "code", "named"),
    [
        ({"activations": ["sigmoid", "gelu"]}, "unknown-function", ["nevofed.activations = 'gelu'"]),
        ({"activations": []}, "invalid-setting", ["nevofed.activations"]),
        ({"objective": "f2"}, "unknown-objective", ["nevofed.objective = 'f2'"]),
        ({"objective": "no.such.module:f"}, "not-importable", ["'no.such.module:f'"]),
        ({"output": "bins", "edges": [1.0]}, "invalid-edges", ["nevofed.edges = [1.0]", "2"]),
        ({"edges": [1.0, 2.0]}, "inapplicable-setting", ["nevofed.edges", "'bins'"]),
        ({"network": "recurrent", "steps": 4}, "indivisible-features", ["nevofed.steps = 4"]),
        ({"steps": 2}, "inapplicable-setting", ["nevofed.steps = 2", "'recurrent'"]),
        (
            {"start": "full", "max_connections": 3},
            "too-many-connections",
            ["nevofed.start = 'full'", "max_connections = 3"],
        ),
        ({"max_connections": 2}, "too-many-connections", ["3 connections", "max_connections = 2"]),
    ],
)
def test_settings_that_do_not_fit_are_said_in_one_line(settings: dict[str, Any], code: str, named: list[str]) -> None:
    with refused(ConfigError, code, *named):
        method(made_table(), **settings)


def test_one_genome_is_no_population() -> None:
    with pytest.raises(ConfigError, match="population"):
        method(made_table(), population=1)


# -- beyond the paper: psi during the search, one population, polish -------------------------------------------------


def test_soft_counts_by_hand() -> None:
    """Outputs 0 and 1/4 make probabilities softmax(0, 1) = (1, e) / (1 + e)."""
    nodes = [[OUTPUTS_FROM, 0.0, 1.0, 2, 0], [OUTPUTS_FROM + 1, 0.25, 1.0, 2, 0]]  # relu of the bias
    genome = population_from_rows([nodes], [[]])
    y = np.array([0, 0, 0, 1])
    found = soft_confusions(genome, np.zeros((4, 2), np.float32), y, Readout(2))
    p = np.e / (1 + np.e)
    assert found[0] / FIXED_POINT == pytest.approx(np.array([[3 * (1 - p), 3 * p], [1 - p, p]]), abs=1e-6)


def test_soft_counts_of_class_ranges_by_hand() -> None:
    """One output of 1 with edges at 0.5 and 2: distances -0.5, 0.5 and -1 to the ends of the three classes."""
    genome = population_from_rows([[[OUTPUTS_FROM, 1.0, 1.0, 2, 0]]], [[]])
    found = soft_confusions(genome, np.zeros((1, 2), np.float32), np.array([2]), Readout(3, edges=(0.5, 2.0)))
    weights = np.exp(4.0 * np.array([-0.5, 0.5, -1.0]))
    assert found[0, 2] / FIXED_POINT == pytest.approx(weights / weights.sum(), abs=1e-6)
    assert not found[0, :2].any()


def test_the_best_by_psi_of_all_rounds_is_kept() -> None:
    data = made_table(clients=3)
    server = method(data, keep="best", patience=2, rounds=9)
    with local_federation(data, 1, 0) as federation:
        state = server.init(federation, stream(1, "init"))
        seen = []
        while not server.done(state):
            federation.begin(state.round + 1)
            state, metrics = server.step(state, federation, stream(1, "step", state.round))
            found = server._evaluate(
                [state.bests[name] for name in data.names], federation.clients(), "train", federation, True
            )
            seen.append(np.mean([server.fitness(counts) for counts in found.values()], axis=0).max())
            assert metrics["psi"] == pytest.approx(max(seen))
        assert state.falling == 2 or state.round == 9, "the islands stop after two rounds without a higher psi"
        assert np.array_equal(server._global(state, federation), state.top[0])


def test_a_best_that_few_clients_have_measured_is_not_kept() -> None:
    """At home it is right about all rows. Of four clients two are not most of them, three are."""
    server = method(made_table(clients=4), keep="best")
    perfect, poor = np.array([[3, 0], [0, 3]]), np.array([[1, 2], [2, 1]])
    replies: dict[str, Any] = {"a": {"genome": np.zeros(1, np.uint8), "confusion": perfect}}
    with local_federation(made_table(clients=4), 1, 0) as federation:
        before = server.init(federation, stream(1, "init"))
        for visits, psi in (([], -1.0), ([poor], -1.0), ([poor, poor], (1 + 1 / 3 + 1 / 3) / 3)):
            after = server._with_top(before, replies, {"a": visits}, 4, federation)
            assert after.top_psi == pytest.approx(psi) and after.falling == 0


def test_soft_psi_is_the_fitness_of_the_settings() -> None:
    """Accuracy of probabilities: the trace of the soft counts, as a share of the rows."""
    data = made_table(clients=2)
    server = method(data, refine=1.0, objective="error")
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        island = new_island(server.settings, lambda population: np.zeros(len(population)), stream(1))
        psi, _ = soft_psi(server, island.population, federation.clients(), federation)
    each = []
    for name in data.names:
        x, y = data.client(name).part("train")
        soft = soft_confusions(island.population, x, y, server.reading)
        each.append(np.trace(soft, axis1=1, axis2=2) / soft.sum(axis=(1, 2)))
    assert psi == pytest.approx(np.mean(each, axis=0))


def test_phases_follow_each_other_and_polish_only_improves() -> None:
    data = made_table(clients=3)
    server = method(data, rounds=10, refine=0.3, polish=0.3, refine_population=12)
    assert server.config.phases == {"islands": 4, "refine": 3, "polish": 3}
    with local_federation(data, 1, 0) as federation:
        state = server.init(federation, stream(1, "init"))
        phases, psi = [], {}
        while not server.done(state):
            federation.begin(state.round + 1)
            state, metrics = server.step(state, federation, stream(1, "step", state.round))
            phases.append(metrics.get("phase", "islands"))
            psi.setdefault(phases[-1], []).append(metrics.get("psi"))
        assert phases == ["islands"] * 4 + ["refine"] * 3 + ["polish"] * 3
        assert psi["refine"] == sorted(psi["refine"]) and psi["polish"] == sorted(psi["polish"])
        assert psi["polish"][0] >= psi["refine"][-1]
        # The strategy is made again from its history, to the bit.
        tuning = tuning_of(server, state.polished)
        assert tuning.best_fitness == psi["polish"][-1]
        found = server.results(state, federation, stream(1, "results"))
        assert found[0].picks == ["high", "global"] and {one.owner for one in found[1:]} == set(data.names)
        assert all("importance" in one.about for one in found)
    longer = method(data, rounds=40, refine=0.3, polish=0.3, refine_population=12)
    assert longer._phase(state) == "islands", "a longer run goes on with the islands, which wait on the clients"


def test_one_population_instead_of_islands() -> None:
    data = made_table(clients=2)
    server = method(data, rounds=3, refine=1.0, refine_population=10)
    with local_federation(data, 1, 0) as federation:
        state = server.init(federation, stream(1, "init"))
        for number in range(3):
            federation.begin(number + 1)
            state, _ = server.step(state, federation, stream(1, "step", number))
        (only,) = server.results(state, federation, stream(1, "results"))
    assert server.done(state) and only.picks == ["high", "global"] and not state.bests


def test_the_refined_population_changes_gently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Functions and nodes change less often than on the islands, connections a little more often."""
    data, used = made_table(clients=2), []

    def noted(settings: NeatSettings, *others: Any) -> Island:
        used.append(settings)
        return new_island(settings, *others)

    monkeypatch.setattr(nevofed_search, "new_island", noted)
    server = method(data, rounds=2, refine=1.0, refine_population=10, population=20)
    with local_federation(data, 1, 0) as federation:
        federation.begin(1)
        server.step(server.init(federation, stream(1, "init")), federation, stream(1, "step"))
    assert method(data, refine_node_add=0.3).config.gentle(data.schema).node_add == 0.3
    names = ("population", "activation_mutation", "aggregation_mutation", "node_add", "connection_add", "node_delete")
    islands = server.config.neat(data.schema)
    assert [getattr(used[0], name) for name in names] == [10, 0.1, 0.1, 0.1, 0.5, 0.1]
    assert [getattr(islands, name) for name in names] == [20, 0.4, 0.4, 0.4, 0.4, 0.1]


def test_polish_draws_from_its_own_stream_only() -> None:
    before = np.random.get_state()[1].tolist()
    tuning = Polish(constant(0, 2), 30.0, 7)
    first = [one.bias.tolist() for one in (tuning.candidates()[0],)]
    tuning.tell([0.1] * len(tuning._asked))
    assert np.random.get_state()[1].tolist() == before
    assert [Polish(constant(0, 2), 30.0, 7).candidates()[0].bias.tolist()] == first


def test_polish_never_hands_over_less_than_it_got() -> None:
    """The genome itself is measured with the first generation, and counts for the best, not for the strategy."""
    start = constant(0, 2)
    tuning = Polish(start, 30.0, 7, size=6)
    assert len(tuning.candidates()) == 6 + 1
    tuning.tell([0.1, 0.2, 0.1, 0.1, 0.1, 0.1, 0.3])
    assert tuning.best_fitness == 0.3 and tuning.best is start
    second = tuning.candidates()
    assert len(second) == 6
    tuning.tell([0.1, 0.1, 0.1, 0.4, 0.1, 0.1])
    assert tuning.best_fitness == 0.4 and tuning.best.bias.tolist() == second[3].bias.tolist()
    worse = Polish(start, 30.0, 7, [[0.1, 0.2, 0.1, 0.1, 0.1, 0.1, -0.3]], size=6)
    assert worse.candidates()[0].bias.tolist() == second[0].bias.tolist()


def test_a_run_of_few_rounds_is_one_of_islands() -> None:
    assert NEvoFedConfig(rounds=2, refine=0.4, polish=0.3).phases == {"islands": 2, "refine": 0, "polish": 0}


@pytest.mark.parametrize(
    ("settings", "code"),
    [({"refine": 0.5, "polish": 0.6}, "phase-exceeds-rounds"), ({"polish": 1.0}, "phase-exceeds-rounds")],
)
def test_phases_must_leave_rounds_to_search(settings: dict[str, float], code: str) -> None:
    with refused(ConfigError, code, "nevofed.refine"):
        NEvoFedConfig(rounds=10, **settings)  # type: ignore[arg-type]
