"""What explains a network says and computes the same as the network."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.expression import expressed, structure
from atoll.algorithms.neat.population import (
    OUTPUTS_FROM,
    Population,
    first_generation,
    population_from_rows,
    split_name,
)
from atoll.algorithms.neat.scoring import predicted_classes
from atoll.algorithms.neat.settings import NeatSettings
from atoll.algorithms.neat.variation import mutate_attributes, mutate_structure
from atoll.api import search
from atoll.core.messages import Tensors
from atoll.errors import RunDirectoryError
from atoll.export.numpy_file import numpy_file
from atoll.preparation.value import Preparation, RawColumn, Statistics, of_table
from atoll.report.explain.drawing import drawing
from atoll.report.explain.files import explain
from atoll.report.explain.formula import Formulas
from atoll.report.explain.measures import measures
from atoll.report.explain.stability import stability, write_stability
from atoll.rng import stream
from atoll.run.reader import Run, load
from atoll.spaces.genome import weights_of
from atoll.store.models import Model, save_model
from atoll.testing import made_table
from made_runs import manifest
from refusals import refused

OUT = OUTPUTS_FROM
PLAIN = of_table(["age", "pulse", "<b>&", "x"], ["calm", "busy", "odd"])
SCHEMA = PLAIN.row_schema


def model_of(network: Population, preparation: Preparation, edges: tuple[float, ...] = (), **reading: Any) -> Model:
    usual = {"space": "genome", "input": [4], "classes": len(preparation.classes), "recurrent": False, "steps": 1}
    arch = {**usual, "passes": 1, "edges": list(edges), **structure(network), **reading}
    return Model(arch, weights_of(network), Tensors({}), preparation)


def genomes(told: NeatSettings) -> list[Population]:
    rng = stream(7, "genomes")
    population = first_generation(told, rng)
    for _ in range(12):
        population = mutate_attributes(mutate_structure(population, told, rng), told, rng)
    return [expressed(population[place]) for place in range(len(population))]


def executed(text: str) -> dict[str, Any]:
    space: dict[str, Any] = {}
    exec(compile(text, "network.py", "exec"), space)
    return space


def glucose() -> tuple[Population, Preparation]:
    """The paper's Eq. 3."""
    connections = [[0, OUT, 0.97, True], [1, OUT, 0.09, True], [2, OUT, 0.69, True], [3, OUT, 2.26, True]]
    preparation = of_table(["G(t)", "d12 G(t)", "d11 G(t)", "d9 G(t)"], ["low", "high"])
    return population_from_rows([[[OUT, 0.22, 1.0, 2, 0]]], [connections]), preparation


def test_the_papers_equation() -> None:
    network, preparation = glucose()
    line = Formulas(network, preparation, bins=True).text().splitlines()[2]
    assert line == "value = relu(0.97 * G(t) + 0.09 * d12 G(t) + 0.69 * d11 G(t) + 2.26 * d9 G(t) + 0.22)"


def test_hidden_nodes_products_and_signs_in_words() -> None:
    hidden = split_name(0, OUT, 1)
    nodes = [[OUT, -0.5, 1.0, 0, 0], [OUT + 1, 0.0, 1.0, 1, 0], [hidden, 0.25, 2.0, 3, 1]]
    connections = [[0, hidden, 3.0, True], [1, hidden, -1.0, True], [hidden, OUT, -2.0, True], [1, OUT, 1.5, True]]
    text = Formulas(population_from_rows([nodes], [connections]), PLAIN).text().splitlines()
    assert "h1 = sin(-6 * age * pulse + 0.25)" in text
    assert "calm = sigmoid(-2 * h1 + 1.5 * pulse - 0.5)" in text and "busy = 0 (always)" in text


def scaled(classes: list[str], logarithm: bool = False) -> Preparation:
    """Four columns of which one is one-hot, with gaps, a logarithm and a scaling."""
    colour = RawColumn(name="colour", kind="category", words=["blue", "red"], coding="onehot")
    columns = [RawColumn(name="age"), colour, RawColumn(name="pulse")]
    known = Statistics(fill=[40.0, 0.0, 0.0, 70.0], mean=[50.0, 0.5, 0.5, 80.0], deviation=[10.0, 0.5, 0.5, 20.0])
    return Preparation(
        kind="table", columns=columns, logarithm=logarithm, scale="federated", statistics=known, classes=classes
    )


def test_the_decision_of_two_classes_is_one_inequality_in_raw_units() -> None:
    nodes = [[OUT, 0.5, 1.0, 0, 0], [OUT + 1, 0.0, 1.0, 0, 0]]
    connections = [[0, OUT, 2.0, True], [3, OUT + 1, 4.0, True]]
    text = Formulas(population_from_rows([nodes], [connections]), scaled(["calm", "busy"])).text().splitlines()
    # busy - calm = 4 (pulse - 80) / 20 - 2 (age - 50) / 10 - 0.5 > 0
    assert text[0] == "The answer is 'busy' where 0.2 * pulse - 0.2 * age > 6.5, else 'calm'."
    assert "calm = sigmoid(0.2 * age - 9.5)" in text and "busy = sigmoid(0.2 * pulse - 16)" in text


def test_constants_are_folded_and_products_keep_their_shift() -> None:
    hidden = split_name(0, OUT, 1)
    nodes = [[OUT, 0.0, 1.0, 2, 1], [OUT + 1, 0.0, 1.0, 1, 0], [hidden, 3.0, 1.0, 2, 0]]
    connections = [[0, OUT, 2.0, True], [hidden, OUT, 5.0, True]]
    text = Formulas(population_from_rows([nodes], [connections]), scaled(["calm", "busy"])).text()
    # 2 (age - 50) / 10 * 5 * relu(3) = 3 (age - 50)
    assert "calm = relu(3 * (age - 50))" in text and "h1" not in text and "busy = 0 (always)" in text
    assert text.startswith("The answer is 'busy' where busy > calm, else 'calm'.")
    assert "slog(age)" in Formulas(population_from_rows([nodes], [connections]), scaled(["a", "b"], True)).text()


def test_the_numpy_file_answers_the_same() -> None:
    told = NeatSettings(inputs=4, outputs=3, population=25)
    x = stream(8, "rows").standard_normal((20, 4))
    for network in genomes(told):
        space = executed(numpy_file(model_of(network, PLAIN)))
        wanted = outputs(network, x.astype(np.float32), 3)
        np.testing.assert_allclose(space["outputs"](x), wanted[0].T, rtol=1e-13, atol=1e-13)
        assert space["predict"](x) == [PLAIN.classes[place] for place in wanted[0].argmax(axis=0).tolist()]
        assert space["CLASSES"] == ["calm", "busy", "odd"] and space["COLUMNS"][2] == "<b>&"


@pytest.mark.parametrize("logarithm", [False, True])
def test_the_numpy_file_prepares_raw_rows(logarithm: bool) -> None:
    preparation = scaled(["calm", "busy", "odd"], logarithm)
    rows = np.array([[45.0, 1, 90], [np.nan, 0, 61], [-3.0, 0, np.nan]])
    inputs = np.array([[45.0, 0, 1, 90], [40.0, 1, 0, 61], [-3.0, 1, 0, 70]], np.float32)
    if logarithm:
        inputs = np.copysign(np.log1p(np.abs(inputs)), inputs)
    assert preparation.statistics is not None
    inputs = (inputs - np.array(preparation.statistics.mean, np.float32)) / np.array(preparation.statistics.deviation)
    for network in genomes(NeatSettings(inputs=4, outputs=3, population=10)):
        space = executed(numpy_file(model_of(network, preparation)))
        np.testing.assert_allclose(space["outputs"](rows), outputs(network, inputs, 3)[0].T, rtol=1e-4, atol=1e-5)


def test_the_numpy_file_of_a_recurrent_network_and_of_bins() -> None:
    told = NeatSettings(inputs=2, outputs=1, population=25, recurrent=True)
    x, edges = stream(8, "rows").standard_normal((10, 4)), (-0.25, 0.5)
    for network in genomes(told):
        space = executed(numpy_file(model_of(network, PLAIN, edges, recurrent=True, steps=2, passes=2)))
        wanted = recurrent_outputs(network, np.repeat(x.astype(np.float32).reshape(10, 2, 2), 2, axis=1), 1)
        assert space["predict"](x) == [PLAIN.classes[place] for place in predicted_classes(wanted, edges)[0].tolist()]


def counted(text: str) -> dict[str, int]:
    """How often each class occurs in a drawing."""
    found: dict[str, int] = {}
    for element in ElementTree.fromstring(text).iter():
        for word in element.get("class", "").split():
            found[word] = found.get(word, 0) + 1
    return found


def test_the_drawing_is_sound_xml_with_every_input_node_and_connection() -> None:
    told = NeatSettings(inputs=4, outputs=3, population=25)
    for network in genomes(told):
        text = drawing(network, SCHEMA)
        inputs = len(set(network.source[network.source < OUT].tolist()))
        found = counted(text)
        assert found["node"] == inputs + len(network.node)
        assert found.get("arrow", 0) == len(network.source), "every connection ends in an arrow"
        assert found["edge"] == len(network.source) + 2, "and two are in the legend"
        assert "positive weight" in text and "negative weight" in text
        assert not list(ElementTree.fromstring(text).iter("{*}b")), "a feature's name is text, never markup"


def test_a_recurrent_drawing_has_its_loops() -> None:
    hidden = split_name(0, OUT, 1)
    nodes = [[OUT, 0.0, 1.0, 0, 0], [hidden, 0.0, 1.0, 0, 0]]
    connections = [[hidden, hidden, 1.0, True], [hidden, OUT, 1.0, True], [0, hidden, 1.0, True]]
    text = drawing(population_from_rows([nodes], [connections]), SCHEMA, recurrent=True, bins=True)
    assert counted(text)["dotted"] == 2 and "reads the step before" in text


def test_a_run_is_explained_in_files(tmp_path: Path) -> None:
    data = made_table(clients=2, rows=40)
    run = search("nevofed", data, out=tmp_path / "run", rounds=3, workers=0, population=20)
    written = explain(run, "high", tmp_path / "out")
    names = ["measures.csv", "network.svg", "formula.txt", "features.csv", "network.py"]
    assert [path.name for path in written] == names
    module, space = run.model("high"), executed((tmp_path / "out" / "network.py").read_text())
    import torch

    x = data.client(data.names[0]).part("test")[0]
    wanted = module(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(space["outputs"](x), wanted, rtol=1e-12, atol=1e-12)
    lines = (tmp_path / "out" / "features.csv").read_text().splitlines()
    importance = run.result["candidates"][0]["about"]["importance"]
    assert lines[0] == "feature,name,importance" and len(lines) == 1 + len(importance)
    values = [float(line.rpartition(",")[2]) for line in lines[1:]]
    assert values == sorted(values, reverse=True)


def test_other_networks_have_measures_only(tmp_path: Path) -> None:
    run = search("fedavg", made_table(), out=tmp_path / "run", rounds=1, workers=0, hidden=[4])
    assert explain(run, "high", tmp_path / "out") == [tmp_path / "out" / "measures.csv"]
    with refused(RunDirectoryError, "not-an-evolved-network", run.path, "'high'"):
        stability([run])


def test_the_measures_of_each_class_and_client() -> None:
    """Of three rows of `yes` one is found; the client has none, and on the new client all three answers are right."""
    entry = {
        "test": {"confusion": [[2, 1], [2, 1]]},
        "clients": {"=north": {"confusion": [[2, 1], [0, 0]]}},
        "held_out": {"confusion": [[2, 0], [0, 1]], "clients": {"dora": {"confusion": [[2, 0], [0, 1]]}}},
    }
    lines = measures(entry, ("no", "yes")).splitlines()
    assert lines[0] == "part,client,class,rows,sensitivity,specificity,ppv,npv"
    assert lines[2] == "test,,yes,3,0.333333,0.666667,0.500000,0.500000"
    assert lines[4] == "client,'=north,yes,0,,0.666667,0.000000,1.000000"
    assert lines[5].startswith("held_out,,no,2,1.0") and lines[8] == "new_client,dora,yes,1" + 4 * ",1.000000"
    assert measures({}, ("no", "yes")) == ""


def test_feature_stability_over_runs(tmp_path: Path) -> None:
    """Three runs: all read `age`, one of them `x`; importance as each run has measured it."""
    networks: list[tuple[list[int], dict[str, float]]] = [
        ([0], {"0": 0.5}),
        ([0, 3], {"0": 0.25, "3": 0.125}),
        ([0], {}),
    ]
    runs = []
    for number, (sources, importance) in enumerate(networks, start=1):
        connections = [[source, OUT, 1.0, True] for source in sources]
        nodes = [[OUT + place, 0.0, 1.0, 0, 0] for place in range(3)]
        network = population_from_rows([nodes], [connections])
        runs.append(finished_run(tmp_path / f"seed-{number}", model_of(network, PLAIN), importance))
    age, x, *unused = stability(runs)
    assert (age.name, age.used, age.runs) == ("age", 3, 3) and age.importance == pytest.approx(0.375)
    assert age.deviation == pytest.approx(0.125 * 2**0.5)
    assert (x.name, x.used, x.importance, x.deviation) == ("x", 1, 0.125, None)
    assert [one.used for one in unused] == [0, 0]
    lines = write_stability([age, x], tmp_path / "out" / "features.csv").read_text().splitlines()
    assert lines[1] == "0,age,3,3,0.375000,0.176777" and lines[2] == "3,x,1,3,0.125000,"


def finished_run(folder: Path, model: Model, importance: dict[str, float]) -> Run:
    """A run with this network, as far as explanations read it."""
    (folder / "models").mkdir(parents=True)
    (folder / "config.toml").write_text("")
    (folder / "manifest.json").write_text(manifest("nevofed"))
    weights = f"models/{save_model(folder / 'models', model)}"
    entry = {"id": "global", "picks": ["global"], "weights": weights, "about": {"importance": importance}}
    (folder / "result.json").write_text(json.dumps({"candidates": [entry], "clients": {}}))
    return load(folder)
