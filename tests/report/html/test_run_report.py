"""A run's report: what it says, what it draws, and that it is one small file."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from atoll.api import search
from atoll.cli.app import app
from atoll.core.messages import Schema, Tensors
from atoll.errors import ConfigError, RunDamaged, RunDirectoryError
from atoll.methods.decnas.settings import DecnasConfig
from atoll.preparation.value import of_table
from atoll.report.html.run_report import LARGEST, report, write_report
from atoll.report.reference import computed_reference, reference_of
from atoll.report.sentences import paragraphs, times
from atoll.report.view import view
from atoll.spaces.pruned.pruning import narrowed
from atoll.store.models import Model, save_model
from atoll.testing import made_table
from page_runs import (
    CHOICE,
    CLASSES,
    DARTS,
    FIXED,
    SPARSE,
    candidate,
    event,
    front_metrics,
    made_events,
    result,
    searched,
    simulated_tasks,
    write_run,
)
from refusals import refused


class Reader(HTMLParser):
    """The elements and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.ids: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if (name := dict(attrs).get("id")) is not None:
            self.ids.append(name)

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).replace("\u202f", " ").split())


def read(text: str) -> Reader:
    return Reader(re.sub(r"<(style|script)>.*?</\1>", "", text, flags=re.DOTALL))


def test_a_report_says_first_what_was_run_and_found(tmp_path: Path) -> None:
    words = [text.replace("\u202f", " ") for text in paragraphs(view(searched(tmp_path / "first")), None)]
    assert words[0] == (
        "The method realtime evolved sub-networks of a shared master by error and cost while 3 clients trained it: 6 "
        "rounds on made (90 rows, 3 classes), seed 1."
    )
    assert words[1].startswith(
        "It found 2 networks. The recommended one, 30 (high), answers 80 % of 30 test rows correctly; always answering "
        "'calm' would be right for 34 %. It takes 4 k multiply-accumulates for one image and has 58 weights."
    )
    assert words[2] == (
        "The clients sent 6 kB, received 18 kB and computed 300 k multiply-accumulates in 3 s on this machine. All 3 "
        "clients took part; all of their 36 replies were used."
    )


def test_a_report_has_every_section_once_and_sound_links(tmp_path: Path) -> None:
    page = read(report([view(searched(tmp_path / "first"))]))
    for name in ("summary", "front", "rounds", "networks", "clients", "classes", "cost", "reproduce"):
        assert page.ids.count(name) == 1
    assert len(page.ids) == len(set(page.ids))
    links = [values["href"] for tag, values in page.elements if tag == "a"]
    assert all(link is not None and link.startswith("#") and link[1:] in page.ids for link in links)
    assert not any(values.get("src") for _, values in page.elements), "nothing is loaded"
    assert "High" in page.text and "Knee" in page.text and "residual" in page.text


def test_every_kind_of_method_has_charts(tmp_path: Path) -> None:
    titles = {
        "fedavg": ("Accuracy", "Loss"),
        "realtime": ("Accuracy of High and Knee", "Hypervolume"),
        "fedrl": ("Accuracy of sampled networks", "Entropy", "Training of the network that was found"),
        "decnas": ("Networks of falling cost", "Accuracy"),
        "retrain": ("Accuracy", "Weights of one upload"),
    }
    for method, wanted in titles.items():
        text = read(report([view(write_run(tmp_path / method, method))])).text
        for title in (*wanted, "Bytes so far", "Computation so far", "Duration of each round"):
            assert title in text, (method, title)
        assert "so far" in text and "atoll resume" in text, "it is not finished"


def test_a_method_from_outside_has_charts_of_its_numbers(tmp_path: Path) -> None:
    events = [event(number, {"error": 0.5, "courage": number}) for number in (1, 2, 3)]
    run = write_run(tmp_path / "own", "fedavg", events=events, manifest={"metrics_kind": "of its own", "method": "own"})
    assert "courage" in read(report([view(run)])).text


@pytest.mark.parametrize(
    ("architecture", "words"),
    [
        ({**CHOICE, "key": [0, 3]}, ("stem", "skipped", "separable", "head")),
        (FIXED, ("6 to 5", "5 to 3", "30 MACs")),
        (SPARSE, ("of 30 connections", "epsilon 3", "removes 20.0% of the weights")),
        (DARTS, ("Normal cell", "Reduction cell", "sep conv 3x3", "skip connect")),
    ],
)
def test_every_kind_of_network_is_drawn(tmp_path: Path, architecture: dict[str, Any], words: tuple[str, ...]) -> None:
    run = write_run(tmp_path / "run", "fedavg", candidates=[candidate("net", architecture, ["high", "final"])])
    text = read(report([view(run)])).text
    for word in words:
        assert word in text, word


def test_pruned_networks_name_their_layers_for_people(tmp_path: Path) -> None:
    """The second convolution has been narrowed to two of its four filters."""
    schema = Schema("image", (1, 8, 8), ("a", "b", "c"))
    start = DecnasConfig(model="convnet", widths=[4, 4, 4, 4, 4, 4], rounds=1).fitted(schema, 4).start(schema)
    found = [
        candidate("m0", start, []),
        candidate("m1", narrowed(start, "1.0", 2), ["final"], about={"layer": "conv 2", "unit": "1.0"}),
    ]
    text = read(report([view(write_run(tmp_path / "run", "decnas", candidates=found))])).text
    assert "pruned" in text and "conv 2 2 of 4" in text and "conv 6 4 of 4" in text
    assert "m2 conv 1" in text, "the network that an iteration ended with"
    assert "layer 1" not in text


def test_an_evolved_network_is_drawn_with_a_table_of_its_connections(tmp_path: Path) -> None:
    genome = {"space": "genome", "input": [2], "classes": 2, "edges": [], "recurrent": False, "steps": 1, "passes": 1}
    genome |= {"nodes": [["o0", "tanh", "sum"], ["o1", "sigmoid", "sum"]], "connections": [["i0", "o0"], ["i1", "o1"]]}
    weights = Tensors({"weight": np.float32([2.5, -1.5]), "bias": np.float32([0, 0]), "response": np.float32([1, 1])})
    run = write_run(tmp_path / "run", "nevofed", classes=("yes", "no"))
    (tmp_path / "run" / "models").mkdir()
    name = save_model(
        tmp_path / "run" / "models", Model(genome, weights, Tensors({}), of_table(["<b>age", "dose"], ["yes", "no"]))
    )
    entry = candidate("global", genome, ["high", "global"], weights=f"models/{name}")
    (tmp_path / "run" / "result.json").write_text(json.dumps(result("nevofed", 6, [entry])))
    page = read(report([view(run)]))
    assert "Connections" in page.text and "<b>age yes 2.5" in page.text and "dose no -1.5" in page.text


def test_failing_clients_are_named_with_the_reason(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", "fedavg", events=simulated_tasks(4))
    page = read(report([view(run)]))
    assert "Client 'west' never took part: of 4 tasks 4 failed (no reply)" in page.text
    assert "Why replies were lost no reply failed 4 1" in page.text.replace(
        "reason what became of the reply replies clients ", ""
    )
    assert (
        "On the virtual network" in page.text and "Latency of replies" in page.text and "virtual time 40 s" in page.text
    )


def test_rows_per_class_are_shown_as_far_as_they_are_known(tmp_path: Path) -> None:
    text = read(report([view(searched(tmp_path / "a"))])).text
    assert "test rows by class" in text and "training rows by class" not in text
    shared = {name: {"train": 6, "labels": [1, 2, 3]} for name in ("north", "south", "west")}
    page = report([view(_shared(tmp_path / "b", shared))])
    assert "training rows by class" in read(page).text and "calm: 1, busy: 2, odd: 3" in page


def _shared(folder: Path, shared: dict[str, Any]) -> Any:
    run = searched(folder)
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"clients": shared}))
    return type(run)(folder)


def test_several_runs_are_in_one_file_with_rivals_as_stars(tmp_path: Path) -> None:
    first = searched(tmp_path / "first")
    rival = write_run(tmp_path / "rival", "fedavg", candidates=[candidate("final", FIXED, ["high", "final"])])
    text = report([view(first), view(rival)])
    page = read(text)
    assert (
        "2 runs: realtime, fedavg" in page.text and page.ids.count("run-1") == 1 and len(page.ids) == len(set(page.ids))
    )
    assert text.count('class="star c1"') >= 1 and "rival: a fixed network" in page.text
    assert "for 6 rounds (measured)" in page.text


def test_rivals_of_baselines_are_found_beside_the_run(tmp_path: Path) -> None:
    run = searched(tmp_path / "first")
    write_run(
        tmp_path / "first-baselines" / "standard" / "seed-1",
        "retrain",
        candidates=[candidate("standard", FIXED, ["high", "standard"])],
    )
    out = write_report([run.path], tmp_path / "out" / "report.html")
    text = out.read_text()
    assert 'class="star c1"' in text and "measured in the run seed-1" in read(text).text


def test_a_long_run_with_many_clients_stays_below_two_megabytes(tmp_path: Path) -> None:
    names = [f"client-{number:03}" for number in range(300)]
    entries = [
        candidate(f"n{number}", {**CHOICE, "key": [number % 4, 3]}, ["high"] if number == 0 else [], names)
        for number in range(60)
    ]
    run = write_run(
        tmp_path / "long", "realtime", 3000, candidates=entries, clients=names, events=list(made_events("front", 3000))
    )
    text = report([view(run)])
    assert len(text.encode()) <= LARGEST and "3,000 rounds" in read(text).text


def test_the_slider_has_the_fronts_of_earlier_rounds(tmp_path: Path) -> None:
    text = report([view(searched(tmp_path / "first"))])
    assert re.findall(r'data-name="(\d+)"', text) == ["1", "2", "3", "4", "5", "6"]
    assert text.count('class="layer" display="none"') == 5


def test_a_front_before_a_final_training_has_no_test_errors(tmp_path: Path) -> None:
    events = [event(1, {**front_metrics(1), "phase": "search"}), event(2, {**front_metrics(2), "phase": "final"})]
    run = write_run(
        tmp_path / "run", "offline", 2, events=events, candidates=[candidate("30", {**CHOICE, "key": [3, 0]}, ["high"])]
    )
    text = read(report([view(run)])).text
    assert "the end of the search, round 1" in text and "the same network on test rows" not in text


# -- the reference -----------------------------------------------------------------------------------------------------


def test_the_cost_of_federated_averaging_is_computed_by_hand(tmp_path: Path) -> None:
    high = candidate("net", FIXED, ["high"])
    run = write_run(
        tmp_path / "run", "offline", 2, candidates=[high], settings="widths = [5]\nepochs = 2\nfraction = 1.0"
    )
    found = reference_of(view(run))
    assert found is not None and not found.measured and found.network == "an MLP of 5"
    # 6 x 5 + 5 x 3 = 45 MACs, 45 + 8 weights; three clients with 20 rows to train and 5 to validate, two epochs.
    assert found.account.client_macs == 2 * 3 * (3 * 45 * 20 * 2 + 45 * 5)
    assert found.account.bytes_up == found.account.bytes_down == 2 * 3 * 4 * 53


def test_the_computed_cost_is_that_of_a_real_run(tmp_path: Path) -> None:
    data = made_table(clients=3, rows=60)
    run = search(
        "fedavg", data, out=tmp_path / "run", rounds=3, workers=0, hidden=[64, 64], model="mlp", epochs=2, test_every=0
    )
    one = view(run)
    standard = run.result["candidates"][0]["architecture"]
    found = computed_reference(one, standard)
    measured = one.digest.total
    assert found.account.client_macs == measured.client_macs
    assert measured.bytes_up == pytest.approx(found.account.bytes_up, rel=0.06)
    assert found.account.tasks == measured.tasks


def test_virtual_seconds_of_the_reference_are_those_of_the_slowest_client(tmp_path: Path) -> None:
    high = candidate("net", FIXED, ["high"])
    simulation = "[simulation]\nbandwidth = 53.0\nspeed = 1000.0\nlatency = 0.0\n"
    run = write_run(
        tmp_path / "run",
        "offline",
        2,
        candidates=[high],
        config=simulation,
        settings="widths = [5]\nepochs = 1\nfraction = 1.0",
    )
    found = reference_of(view(run))
    assert found is not None
    # 212 bytes at 53 a second: 4 s down, 2.7 s of training (2,700 MACs), 4 s up; then 4 s down and 0.225 s to validate.
    assert found.account.simulated_seconds == pytest.approx(2 * (4 + 2.7 + 4 + 4 + 0.225))


def test_ratios_in_words() -> None:
    assert [times(2, 1), times(30, 1), times(1, 4), times(1, 0)] == [
        "2 times",
        "30 times",
        "0.25 times",
        "an unknown multiple of",
    ]
    assert times(1, 50).replace("\u202f", " ") == "2 % of"


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_what_cannot_be_reported_is_one_line(tmp_path: Path) -> None:
    run = searched(tmp_path / "run")
    with refused(ConfigError, "unknown-report-format", "report.pdf"):
        write_report([run.path], tmp_path / "report.pdf")
    with refused(RunDirectoryError, "not-a-run-directory"):
        write_report([tmp_path / "nothing"], tmp_path / "report.html")
    empty = write_run(tmp_path / "empty", "fedavg", events=[])
    with refused(RunDirectoryError, "no-round-done"):
        write_report([empty.path], tmp_path / "report.html")
    (tmp_path / "file").write_text("")
    with refused(ConfigError, "cannot-write-file"):
        write_report([run.path], tmp_path / "file" / "report.html")
    for text in ("{", '{"candidates": 5}', '{"candidates": [{"id": 3}], "planned_rounds": 1}'):
        (run.path / "result.json").write_text(text)
        with refused(RunDamaged, "file-damaged"):
            write_report([run.path], tmp_path / "report.html")


def test_the_command_writes_the_file(tmp_path: Path) -> None:
    run = searched(tmp_path / "run")
    done = CliRunner().invoke(app, ["report", str(run.path), "-o", str(tmp_path / "r.html")])
    assert (
        done.exit_code == 0
        and "written:" in done.stdout
        and (tmp_path / "r.html").read_text().startswith("<!doctype html>")
    )
    assert CLASSES[0] in (tmp_path / "r.html").read_text()
