"""What explains a network says and computes the same as the network."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll.algorithms.neat.evaluation import outputs, recurrent_outputs
from atoll.algorithms.neat.expression import expressed
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
from atoll.core.messages import Schema
from atoll.errors import RunDirectoryError
from atoll.report.explain.drawing import drawing
from atoll.report.explain.files import explain
from atoll.report.explain.formula import formulas
from atoll.report.explain.numpy_file import numpy_file
from atoll.report.explain.onnx_file import onnx_bytes
from atoll.rng import stream
from atoll.testing import made_table
from refusals import refused

OUT = OUTPUTS_FROM
SCHEMA = Schema("table", (4,), ("calm", "busy", "odd"), ("age", "pulse", "<b>&", "x"))


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


def glucose() -> tuple[Population, Schema]:
    """The paper's Eq. 3."""
    connections = [[0, OUT, 0.97, True], [1, OUT, 0.09, True], [2, OUT, 0.69, True], [3, OUT, 2.26, True]]
    schema = Schema("table", (4,), ("low", "high"), ("G(t)", "d12 G(t)", "d11 G(t)", "d9 G(t)"))
    return population_from_rows([[[OUT, 0.22, 1.0, 2, 0]]], [connections]), schema


def test_the_papers_equation() -> None:
    network, schema = glucose()
    line = formulas(network, schema, bins=True).splitlines()[0]
    assert line == "value = relu(0.97 * G(t) + 0.09 * d12 G(t) + 0.69 * d11 G(t) + 2.26 * d9 G(t) + 0.22)"


def test_hidden_nodes_products_and_signs_in_words() -> None:
    hidden = split_name(0, OUT, 1)
    nodes = [[OUT, -0.5, 1.0, 0, 0], [OUT + 1, 0.0, 1.0, 1, 0], [hidden, 0.25, 2.0, 3, 1]]
    connections = [[0, hidden, 3.0, True], [1, hidden, -1.0, True], [hidden, OUT, -2.0, True], [1, OUT, 1.5, True]]
    text = formulas(population_from_rows([nodes], [connections]), SCHEMA).splitlines()
    assert text[0] == "h1 = sin(-6 * age * pulse + 0.25)"
    assert "calm = sigmoid(-2 * h1 + 1.5 * pulse - 0.5)" in text and "busy = tanh(0)" in text


def test_the_numpy_file_answers_the_same() -> None:
    told = NeatSettings(inputs=4, outputs=3, population=25)
    x = stream(8, "rows").standard_normal((20, 4))
    for network in genomes(told):
        space = executed(numpy_file(network, SCHEMA))
        wanted = outputs(network, x, 3)
        np.testing.assert_allclose(space["outputs"](x), wanted[0].T, rtol=1e-13, atol=1e-13)
        assert space["predict"](x).tolist() == wanted[0].argmax(axis=0).tolist()
        assert space["CLASSES"] == ["calm", "busy", "odd"] and space["FEATURES"][2] == "<b>&"


def test_the_numpy_file_of_a_recurrent_network_and_of_bins() -> None:
    told = NeatSettings(inputs=2, outputs=1, population=25, recurrent=True)
    x, edges = stream(8, "rows").standard_normal((10, 4)), (-0.25, 0.5)
    for network in genomes(told):
        space = executed(numpy_file(network, SCHEMA, recurrent=True, steps=2, passes=2, edges=edges))
        wanted = recurrent_outputs(network, np.repeat(x.reshape(10, 2, 2), 2, axis=1), 1)
        np.testing.assert_allclose(space["outputs"](x), wanted[0].T, rtol=1e-10, atol=1e-10)
        assert space["predict"](x).tolist() == predicted_classes(wanted, edges)[0].tolist()


def test_onnx_answers_the_same() -> None:
    runtime = pytest.importorskip("onnxruntime")
    told = NeatSettings(inputs=4, outputs=3, population=25)
    x = stream(8, "rows").standard_normal((20, 4))
    for network in genomes(told):
        session = runtime.InferenceSession(onnx_bytes(network, 4, 3))
        values, classes = session.run(None, {"rows": x})
        wanted = outputs(network, x, 3)[0].T
        np.testing.assert_allclose(values, wanted, rtol=1e-9, atol=1e-12)
        # Saturated outputs may be equal up to the last bit; elsewhere the class is the same.
        top = np.sort(wanted, axis=1)
        clear = top[:, -1] - top[:, -2] > 1e-9
        assert np.array_equal(classes[clear], wanted.argmax(axis=1)[clear])
    network, _ = glucose()
    session = runtime.InferenceSession(onnx_bytes(network, 4, 1, (0.5, 1.5)))
    rows = np.array([[0.0, 0, 0, 0], [1.0, 0, 0, 0], [3.0, 0, 0, 0]])
    assert session.run(None, {"rows": rows})[1].tolist() == [0, 1, 2]


def test_the_drawing_is_sound_xml_with_every_input_node_and_connection() -> None:
    told = NeatSettings(inputs=4, outputs=3, population=25)
    for network in genomes(told):
        root = ElementTree.fromstring(drawing(network, SCHEMA))
        tags = [element.tag.rpartition("}")[2] for element in root.iter()]
        assert tags.count("circle") == len(network.node) and tags.count("path") == len(network.source)
        assert tags.count("rect") == 1 + len(set(network.source[network.source < OUT].tolist()))
        assert "b" not in tags, "a feature's name is text, never markup"


def test_a_recurrent_drawing_has_its_loops() -> None:
    hidden = split_name(0, OUT, 1)
    nodes = [[OUT, 0.0, 1.0, 0, 0], [hidden, 0.0, 1.0, 0, 0]]
    connections = [[hidden, hidden, 1.0, True], [hidden, OUT, 1.0, True], [0, hidden, 1.0, True]]
    text = drawing(population_from_rows([nodes], [connections]), SCHEMA, recurrent=True, bins=True)
    assert " C " in text and ElementTree.fromstring(text) is not None


def test_a_run_is_explained_in_files(tmp_path: Path) -> None:
    data = made_table(clients=2, rows=40)
    run = search("nevofed", data, out=tmp_path / "run", rounds=3, workers=0, population=20)
    written = explain(run, "high", tmp_path / "out")
    assert [path.name for path in written] == ["network.svg", "formula.txt", "features.csv", "network.py"]
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


def test_other_networks_are_not_explained(tmp_path: Path) -> None:
    run = search("fedavg", made_table(), out=tmp_path / "run", rounds=1, workers=0, hidden=[4])
    with refused(RunDirectoryError, "not-an-evolved-network", run.path, "'high'"):
        explain(run, "high", tmp_path / "out")
