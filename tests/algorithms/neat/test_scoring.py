"""Outputs of a network computed by hand; metrics compared with scikit-learn."""

from __future__ import annotations

import math
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atoll.algorithms.neat import scoring
from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.population import OUTPUTS_FROM, Population, joined, population_from_rows, split_name
from atoll.algorithms.neat.scoring import Readout
from atoll.rng import stream
from atoll.training import metrics

OUT = OUTPUTS_FROM
HIDDEN = split_name(0, OUT, 1)


def network(activation: int = 2, aggregation: int = 0, enabled: bool = True) -> Population:
    """out = relu(0.5 + 2 * hidden - x1), hidden = activation(0.25 + aggregation(3 * x0, 1 * x1))."""
    nodes = [[OUT, 0.5, 1.0, 2, 0], [HIDDEN, 0.25, 1.0, activation, aggregation]]
    connections = [[0, HIDDEN, 3.0, True], [1, HIDDEN, 1.0, True], [HIDDEN, OUT, 2.0, enabled], [1, OUT, -1.0, True]]
    return population_from_rows([nodes], [connections])


def test_outputs_by_hand() -> None:
    x = np.array([[1.0, 2.0]])
    assert outputs(network(2, 0), x, 1)[0, 0, 0] == pytest.approx(0.5 + 2 * 5.25 - 2)
    assert outputs(network(2, 1), x, 1)[0, 0, 0] == pytest.approx(0.5 + 2 * 6.25 - 2)
    assert outputs(network(0, 0), x, 1)[0, 0, 0] == pytest.approx(max(0.5 + 2 / (1 + math.exp(-5 * 5.25)) - 2, 0))
    assert outputs(network(2, 0, enabled=False), x, 1)[0, 0, 0] == 0.0


def test_an_output_that_nothing_enters_is_its_bias() -> None:
    alone = population_from_rows([[[OUT, 0.5, 1.0, 2, 0], [OUT + 1, 0.5, 1.0, 2, 1]]], [[]])
    assert outputs(alone, np.zeros((1, 3)), 2)[0, :, 0].tolist() == [0.5, 1.5]


def test_many_genomes_and_many_rows_are_the_same_as_one_by_one() -> None:
    rng = stream(1, "rows")
    x = rng.standard_normal((3000, 2))
    genomes = [network(activation, aggregation) for activation in range(5) for aggregation in range(2)]
    together = outputs(joined(genomes), x, 1)
    for place, genome in enumerate(genomes):
        assert np.array_equal(together[place], outputs(genome, x, 1)[0])
        assert np.array_equal(outputs(genome, x[17:18], 1)[0, :, 0], together[place, :, 17])


def test_infinite_products_stay_finite() -> None:
    nodes = [[OUT, 0.0, 1.0, 2, 1], [HIDDEN, 0.0, 1.0, 2, 1]]
    connections = [[0, HIDDEN, 30.0, True], [1, HIDDEN, 30.0, True], [HIDDEN, OUT, 30.0, True], [0, OUT, 0.0, True]]
    x = np.full((2, 2), 3e38)
    assert np.isfinite(outputs(population_from_rows([nodes], [connections]), x, 1)).all()


def test_recurrence_by_hand() -> None:
    """out[t] = relu(x[t] + 0.5 * hidden[t-1]), hidden[t] = relu(x[t] + 0.25 * hidden[t-1])."""
    nodes = [[OUT, 0.0, 1.0, 2, 0], [HIDDEN, 0.0, 1.0, 2, 0]]
    connections = [[0, OUT, 1.0, True], [HIDDEN, OUT, 0.5, True], [0, HIDDEN, 1.0, True], [HIDDEN, HIDDEN, 0.25, True]]
    one = population_from_rows([nodes], [connections])
    # hidden: 1, then 2 + 0.25 * 1; the output reads it one step late.
    x = np.array([[[1.0], [2.0], [3.0]]])
    assert recurrent_outputs(one, x, 1)[0, 0, 0] == 3.0 + 0.5 * 2.25


def test_values_on_an_edge_belong_below() -> None:
    values = np.array([[[0.4, 0.5, 0.6, 1.5, 9.0, -3.0]]])
    assert scoring.predicted_classes(values, [0.5, 1.5]).tolist() == [[0, 0, 1, 1, 2, 0]]


def test_ties_go_to_the_first_class() -> None:
    assert scoring.predicted_classes(np.zeros((1, 2, 1)), ()).tolist() == [[0]]
    assert scoring.predicted_classes(np.zeros((1, 3, 1)), ()).tolist() == [[0]]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60))
def test_metrics_agree_with_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score, recall_score

    true, found = np.array(pairs).T
    confusion = np.zeros((1, 4, 4), np.int64)
    np.add.at(confusion[0], (true, found), 1)
    assert scoring.weighted_f1(confusion)[0] == pytest.approx(
        f1_score(true, found, average="weighted", zero_division=0)
    )
    assert scoring.weighted_f1(confusion)[0] == pytest.approx(metrics.weighted_f1(confusion[0]))
    assert scoring.accuracy(confusion)[0] == pytest.approx(accuracy_score(true, found))
    present = np.unique(true)
    recall = recall_score(true, found, labels=present, average="macro", zero_division=0)
    assert scoring.balanced_accuracy(confusion)[0] == pytest.approx(recall)


def test_an_objective_is_one_minus_the_fitness_of_its_name() -> None:
    confusion = np.array([[9, 0, 1], [3, 2, 0], [0, 0, 0]])
    assert scoring.FITNESS.keys() == set(get_args(metrics.Objective))
    for objective, fitness in scoring.FITNESS.items():
        found = metrics.objective_error(objective, confusion)  # type: ignore[arg-type]
        assert 1 - fitness(confusion[None])[0] == pytest.approx(found)


def test_confusions_count_every_row_once() -> None:
    x, y = np.array([[0.0, 0.0], [9.0, 0.0], [9.0, 0.0]]), np.array([0, 1, 0])
    found = scoring.confusions(network(), x, y, Readout(2, edges=(3.0,)))
    assert found.tolist() == [[[1, 1], [0, 1]]]


def test_fitness_can_be_ones_own() -> None:
    own = scoring.find_fitness("atoll.algorithms.neat.scoring:accuracy")
    assert own(np.array([[[3, 1], [0, 0]]])).tolist() == [0.75]
    with pytest.raises(ValueError, match="no_such"):
        scoring.find_fitness("no_such")
