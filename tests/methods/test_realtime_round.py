"""One round of real-time search, computed by hand: Algorithm 3, double sampling, fitness, objectives."""

from __future__ import annotations

import numpy as np
import pytest

from atoll.core.messages import Task
from atoll.rng import stream
from atoll.spaces.choice import space as choice
from methods.two_blocks import Script, client, realtime, state, step, values

SIX_AND_TWO = [client("one", train=6), client("two", train=2)]


@pytest.mark.parametrize(("average", "only_one", "only_two"), [("all", 4.0, 3.0), ("trained", 5.0, 9.0)])
def test_algorithm_3_on_two_clients_and_two_blocks(average: str, only_one: float, only_two: float) -> None:
    """As in Fig. 6. Client one (6 rows) adds 4 to its sub-model, client two (2 rows) adds 8; all weights were 1.

    What both hold: 1 + 6/8 * 4 + 2/8 * 8 = 6. What one of them holds, by all rows: 1 + 6/8 * 4 = 4 and 1 + 2/8 * 8 = 3;
    by the rows of those that trained it: 1 + 4 = 5 and 1 + 8 = 9.
    """
    added = {"one": 4.0, "two": 8.0}
    # Offspring, trained after the parents, add nothing, so that the master is what the parents made of it.
    federation = Script(SIX_AND_TWO, lambda task, number: added[task.client] if number < 2 else 0.0)
    method = realtime(average=average)
    after, _ = step(method, state(method, [[1, 2], [3, 2]]), federation)

    first, second = federation.sent("train")[:2]
    assert {first.client, second.client} == {"one", "two"}
    assert [first.payload["key"], second.payload["key"]] == [[1, 2], [3, 2]]
    dense, bottleneck = (only_one, only_two) if first.client == "one" else (only_two, only_one)
    assert values(after.master) == {
        "stem.first.weight": 6.0,
        "blocks.0.dense.linear.weight": dense,
        "blocks.0.residual.first.weight": 1.0,
        "blocks.0.residual.second.weight": 1.0,
        "blocks.0.bottleneck.squeeze.weight": bottleneck,
        "blocks.0.bottleneck.expand.weight": bottleneck,
        "blocks.1.dense.linear.weight": 1.0,
        "blocks.1.residual.first.weight": 6.0,
        "blocks.1.residual.second.weight": 6.0,
        "blocks.1.bottleneck.squeeze.weight": 1.0,
        "blocks.1.bottleneck.expand.weight": 1.0,
        "head.weight": 6.0,
        "head.bias": 6.0,
    }


def test_round_1_trains_parents_then_offspring_and_later_rounds_offspring_only() -> None:
    """Seven clients, three individuals: groups of three, two and two, each client in one of them."""
    names = [f"client-{i}" for i in range(7)]
    federation = Script([client(name) for name in names])
    method = realtime(population=3)
    parents = [[0, 0], [1, 1], [2, 2]]
    after, _ = step(method, state(method, parents), federation)
    trained = federation.sent("train")
    assert [task.payload["key"] for task in trained[:7]] == [[0, 0]] * 3 + [[1, 1]] * 2 + [[2, 2]] * 2
    assert sorted(task.client for task in trained[:7]) == names
    assert sorted(task.client for task in trained[7:]) == names
    offspring = [task.payload["key"] for task in (trained[7], trained[10], trained[12])]
    assert [task.payload["key"] for task in trained[7:]] == [
        key for key, n in zip(offspring, (3, 2, 2), strict=True) for _ in range(n)
    ]
    evaluated = federation.sent("count_correct")
    assert [task.client for task in evaluated] == names
    assert all(task.payload["keys"] == parents + offspring for task in evaluated)

    step(method, after, federation)
    later = federation.sent("train")[14:]
    assert sorted(task.client for task in later) == names
    assert len(federation.sent("count_correct")) == 14
    keys = federation.sent("count_correct")[-1].payload["keys"]
    assert keys[:3] == after.parents and {tuple(task.payload["key"]) for task in later} == set(map(tuple, keys[3:]))


def test_the_learning_rate_decays_by_the_round() -> None:
    federation = Script(SIX_AND_TWO)
    method = realtime(lr=0.5, decay=0.5)
    after, _ = step(method, state(method, [[0, 1], [1, 0]]), federation)
    step(method, after, federation)
    assert [task.payload["lr"] for task in federation.sent("train")] == [0.5] * 4 + [0.25] * 2


def test_fitness_is_weighted_by_validation_rows() -> None:
    """Of 30 + 10 rows the four keys have 20, 30, 10 and 4 right."""
    counts = {"one": [15, 30, 0, 3], "two": [5, 0, 10, 1]}
    clients = [client("one", validation=30), client("two", validation=10)]
    federation = Script(clients, correct=lambda task: counts[task.client])
    method = realtime()
    after, metrics = step(method, state(method, [[0, 1], [1, 0]]), federation)
    keys = federation.sent("count_correct")[0].payload["keys"]
    expected = dict(zip(map(tuple, keys), (0.5, 0.25, 0.75, 0.9), strict=True))
    assert [row[0] for row in after.objectives] == [expected[tuple(key)] for key in after.parents]
    assert metrics["error"] == 0.25 and metrics["high"]["key"] == "10"
    assert [1, 0] in after.parents


def test_who_does_not_answer_does_not_count() -> None:
    def correct(task: Task) -> list[int]:
        if task.client == "two":
            raise RuntimeError("gone")
        return [15, 30, 0, 3]

    federation = Script([client("one", validation=30), client("two", validation=10)], correct=correct)
    method = realtime()
    _, metrics = step(method, state(method, [[0, 1], [1, 0]]), federation)
    assert metrics["error"] == 0.0


def test_objectives_by_hand() -> None:
    """Key 00 is stem and head: 4 + 4 MACs, 4 + 6 weights, 40 bytes.

    Client one says what it can do: 3 * 8 MACs * 6 rows / 144 a second = 1 s and 40 bytes / 40 a second = 1 s. Two does
    not: 3 * 8 * 2 / 48 = 1 s and 40 / 20 = 2 s. On average 2.5 s. One branch 1 more is 4 MACs and 4 weights more.
    """
    clients = [client("one", train=6, speed=144.0, bandwidth=40.0), client("two", train=2)]
    settings = {"device_speed": 48.0, "device_bandwidth": 20.0}
    for names, plain, with_a_branch in (
        (["error", "macs"], [8.0], [12.0]),
        (["error", "params"], [10.0], [14.0]),
        (["error", "upload_bytes", "macs"], [40.0, 8.0], [56.0, 12.0]),
        (["error", "macs", "latency"], [8.0, 2.5], [12.0, (1.5 + 1.4 + 1.5 + 2.8) / 2]),
    ):
        method = realtime(objectives=names, duplicates="keep", crossover=0.0, mutation=0.0, **settings)
        # Offspring are copies of the parents, and the survivors those of the cheapest; the front names a key once.
        after, metrics = step(method, state(method, [[0, 0], [0, 1]]), Script(clients))
        rows = dict(zip(map(tuple, after.parents), after.objectives, strict=True))
        assert rows[0, 0] == [1.0, *plain]
        assert metrics["front"] == [["00", 1.0, *plain]]
        found = method.values(1.0, method.cost([0, 1]), clients)
        assert found == pytest.approx([1.0, *with_a_branch])


def test_hypervolume_refers_to_the_whole_master() -> None:
    """Every branch of the master together: 4 + 2 * (0 + 4 + 8 + bottleneck 2 * 1 * 2) + 4 = 40 MACs.

    One network on the front, error 0.25 and 8 MACs: (1 - 0.25) * (1 - 8/40) = 0.6.
    """
    federation = Script(
        [client("one", validation=20), client("two", validation=20)], correct=lambda task: [15, 0, 0, 0]
    )
    method = realtime()
    _, metrics = step(method, state(method, [[0, 0], [1, 1]]), federation)
    assert metrics["hypervolume"] == pytest.approx(0.6)


def test_random_search_draws_its_offspring() -> None:
    federation = Script(SIX_AND_TWO)
    method = realtime(search="random", crossover=0.0, mutation=0.0)
    step(method, state(method, [[3, 3], [3, 2]], [[0.5, 8.0], [0.4, 9.0]]), federation)
    keys = federation.sent("count_correct")[0].payload["keys"]
    assert keys == [[3, 3], [3, 2], *map(list, choice.random_keys(2, 2, stream(7, "test")))]


def test_duplicates_are_mutated_again_or_kept() -> None:
    before = [[3, 3], [3, 2], [1, 1], [0, 1]]
    for duplicates, mutation in (("keep", 0.0), ("mutate", 0.1)):
        federation = Script([client(f"client-{i}") for i in range(4)])
        method = realtime(population=4, duplicates=duplicates, crossover=0.0, mutation=mutation)
        step(method, state(method, before, [[0.5, 8.0]] * 4), federation)
        keys = {tuple(key) for key in federation.sent("count_correct")[0].payload["keys"]}
        assert len(keys) == (4 if duplicates == "keep" else 8)


def test_copies_of_a_key_are_one_result() -> None:
    method = realtime(duplicates="keep")
    copies = state(method, [[0, 1], [0, 1]], [[0.5, 12.0], [0.5, 12.0]])
    federation = Script(SIX_AND_TWO)
    federation.begin(2)
    (found,) = method.results(copies, federation, stream(7, "results"))
    assert (found.id, found.picks) == ("01", ["high", "knee"])


def test_the_state_before_is_left_as_it_was() -> None:
    federation = Script(SIX_AND_TWO, lambda task, number: 1.0)
    method = realtime()
    before = state(method, [[1, 2], [3, 2]])
    step(method, before, federation)
    assert set(values(before.master).values()) == {1.0} and before.parents == [[1, 2], [3, 2]]
    assert np.all(before.master["head.bias"] == 1.0)


def test_a_network_beyond_the_limit_is_handed_over_with_a_word() -> None:
    federation = Script(SIX_AND_TWO, correct=lambda task: [9] * len(task.payload.get("keys", [0])))
    method = realtime(max_macs=10)
    after, _ = step(method, state(method, [[1, 1], [2, 2]], [[0.1, 16.0], [0.2, 24.0]]), federation)
    federation.begin(3)
    found = {one.id: one.about for one in method.results(after, federation, stream(7, "results"))}
    costs = {key: method.cost([int(branch) for branch in key]).macs for key in found}
    assert any(macs > 10 for macs in costs.values())
    for key, macs in costs.items():
        assert found[key] == ({"exceeds": f"{macs} MACs, and max_macs = 10"} if macs > 10 else {})


def test_the_hypervolume_is_of_networks_within_the_limit() -> None:
    """16 of 40 MACs and an error of 0.1, or 8 of 40 and 0.5, which alone is within the limit."""
    values, keys = [[0.1, 16.0], [0.5, 8.0]], [[1, 1], [0, 0]]
    federation = Script(SIX_AND_TWO)
    for limit, expected in ((None, 0.9 * 0.6 + 0.5 * 0.2), (10, 0.5 * 0.8), (1, 0.0)):
        method = realtime(max_macs=limit)
        found = method.front_metrics(keys, values, method.admissible(keys, values), federation)
        assert found["hypervolume"] == pytest.approx(expected)
