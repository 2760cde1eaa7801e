"""A site's own rows under `[privacy]`: a server that asks in another way than the site's file says learns nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atoll import spaces
from atoll.clients import jobs
from atoll.core import wire
from atoll.core.messages import Payload
from atoll.data.files.agreement import agree, parse_description
from atoll.data.settings import DataSettings, checked_settings
from atoll.deploy.limits import Limits
from atoll.deploy.site import Site, SiteNode
from atoll.rng import stream
from site_tasks import task_frame

NAMES = ("Ann", "Bob", "Cyd", "Dan", "Eve")
TABLE: dict[str, Any] = {"name": "sites", "label": "outcome", "classes": ["ill", "well", "unclear"], "drop": ["name"]}
TABLE |= {"categories": "code", "split": [0.7, 0.3, 0.0], "blocks": "shuffled", "scale": "none"}
PINNED = checked_settings({key: TABLE[key] for key in ("name", "label", "classes", "drop", "categories")})
ARCH: dict[str, Any] = {"space": "fixed", "model": "mlp", "input": [3], "classes": 3, "hidden": [4]}
EMPTY = np.zeros((0, 0), np.float32)
TRAIN: Payload = {
    "architecture": ARCH,
    "weights": spaces.initial(ARCH, stream(1, "start")),
    "epochs": 1,
    "batch": 10,
    "lr": 0.1,
    "privacy": {"clip": 1.0, "noise": 50.0, "rate": 0.5, "steps": 1},
}
RUN = "ab" * 16


class Hospital:
    """A site of 60 rows whose class is "ill" or "well", never "unclear", and its node."""

    def __init__(self, folder: Path, epsilon: float | None = 1.0, pinned: DataSettings | None = PINNED) -> None:
        rng = stream(3, "hospital")
        lines = ["name,age,pressure,ward,outcome"]
        for number in range(60):
            age, pressure = 20 + 60 * rng.random(), rng.normal(100, 10)
            words = (NAMES[number % 5], f"{age:.1f}", f"{pressure:.2f}", ("north", "west")[number % 2])
            lines.append(",".join((*words, ("ill", "well")[number % 3 > 0])))
        folder.mkdir(exist_ok=True)
        (folder / "rows.csv").write_text("\n".join(lines) + "\n")
        self.cell = lines[5].split(",")[2]
        self.folder = folder / "work"
        self.node = SiteNode(Site("s", folder / "rows.csv", self.folder, False, Limits(epsilon=epsilon), pinned))

    def ask(self, kind: str, **message: Any) -> Payload:
        return wire.decode(self.node.answer(kind, wire.encode(message)))

    def hello(self, **data: Any) -> Payload:
        return self.ask("hello", data={**TABLE, **data}, method="fedavg", private=True)

    def agreed(self, **data: Any) -> Payload:
        """The form that an honest server agrees on, and what it asks for."""
        table = {**TABLE, **data}
        description = parse_description(self.hello(**data)["description"])
        form = agree({"s": description}, checked_settings(table)).model_dump(mode="json")
        return {"data": table, "agreement": form, "seed": 1}

    def prepare(self, private: bool = True, run: str = RUN, **asked: Any) -> Payload:
        own = {"privacy": {"label_noise": 10.0, "moment_noise": 10.0, "bounds": {}}} if private else {}
        return self.ask("prepare", **{"share_labels": False, "run": run, **own, **asked})

    def task(self, preparation: Payload, order: int = 0, payload: Payload = TRAIN, run: str = RUN) -> str | None:
        frame = task_frame(run, order, "s", jobs.TRAIN, payload, preparation)
        error: str | None = wire.decode(self.node.answer("task", frame))["error"]
        return error

    def preparation(self, **data: Any) -> Payload:
        asked = self.agreed(**data)
        answer = self.prepare(**asked)
        assert answer["error"] is None, answer["error"]
        return {**asked, "digest": answer["digest"], "mean": EMPTY, "deviation": EMPTY}


@pytest.fixture
def site(tmp_path: Path) -> Hospital:
    return Hospital(tmp_path / "site")


def test_an_honest_server(site: Hospital) -> None:
    """It learns all classes of the site's file, and not which of them occur."""
    answer = site.hello()
    assert answer["error"] is None
    assert answer["description"]["labels"] == ["ill", "well", "unclear"]
    assert answer["description"]["text"] == {"ward": ["north", "west"]} and "name" not in str(answer["description"])
    preparation = site.preparation()
    assert site.task(preparation) is None
    assert site.task(preparation, 1) is None


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"label": "name", "drop": ["outcome"]}, "data.label = 'name' is not what its site.toml has"),
        ({"drop": []}, "data.drop = ()"),
        ({"classes": None}, "data.classes = None"),
        ({"classes": ["ill", "well"]}, "data.classes = ('ill', 'well')"),
        ({"missing_words": ["101.25"]}, "data.missing_words = ('', '101.25')"),
        ({"missing": "zero"}, "data.missing = 'zero'"),
        ({"categories": "onehot"}, "data.categories = 'onehot'"),
        ({"max_categories": 2}, "data.max_categories = 2"),
        ({"dates": {"age": ["days"]}}, "data.dates"),
        ({"window": 3}, "data.window = 3"),
        ({"separator": ";"}, "data.separator = ';'"),
        ({"name": None, "folder": "x", "client_column": "ward"}, "data.client_column = 'ward'"),
    ],
    ids=str,
)
def test_a_server_that_asks_in_another_way_is_refused(site: Hospital, asked: dict[str, Any], named: str) -> None:
    honest = site.preparation()
    table = {**TABLE, **asked}
    for answer in (site.hello(**asked)["error"], site.prepare(**{**honest, "data": table})["error"]):
        assert answer.startswith("site 's' refuses: ") and named in answer
    assert named in str(site.task({**honest, "data": table}))


def test_whether_a_cell_has_a_value_is_not_answered(site: Hospital) -> None:
    """The same words whether the value is there or not, but for the value that was asked for."""
    answers = [site.hello(missing_words=[word])["error"].replace(word, "WORD") for word in (site.cell, "999.99")]
    assert answers[0] == answers[1]


def test_the_same_settings_in_other_words_are_the_same(site: Hospital) -> None:
    for same in ({"missing": "refuse"}, {"dates": {}}, {"max_categories": 50}, {"units": {"age": "years"}}):
        assert site.hello(**same)["error"] is None, same


def changed(form: Payload, **changes: Any) -> Payload:
    return {**form, "preparation": {**form["preparation"], **changes}}


def test_another_form_of_the_rows_is_refused(site: Hospital) -> None:
    """Errors would tell which words and labels there are; other sites may know more words."""
    honest = site.preparation()
    form, columns = honest["agreement"], honest["agreement"]["preparation"]["columns"]
    ward = next(one for one in columns if one["name"] == "ward")
    others = [one for one in columns if one is not ward]
    more = changed(form, columns=[*others, {**ward, "words": ["east", "north", "west"]}])
    assert site.prepare(**{**honest, "agreement": more})["error"] is None
    for other in (
        {**form, "labels": ["ill", "unclear"]},
        changed(form, columns=[*others, {**ward, "words": ["north"]}]),
        changed(form, columns=[*others, {"name": "ward"}]),
        changed(form, columns=others),
        changed(form, missing_words=["", site.cell]),
        changed(form, classes=["a", "b", "c"]),
    ):
        refusal = site.prepare(**{**honest, "agreement": other})["error"]
        assert "the form of the rows that it is asked for is not that of its own description" in refusal
        assert refusal in str(site.task({**honest, "agreement": other}))


def test_without_a_table_of_its_own_a_limited_site_answers_nothing(tmp_path: Path) -> None:
    site = Hospital(tmp_path / "site", pinned=None)
    assert "limits.epsilon needs a table [data]" in site.hello()["error"]


def test_classes_that_are_numbers(tmp_path: Path) -> None:
    table: dict[str, Any] = {"name": "sites", "label": "grade", "classes": ["1", "2", "3"]}
    path = tmp_path / "rows.csv"
    path.write_text("age,grade\n" + "".join(f"{age},{1 + age % 2}\n" for age in range(9)))

    def labels(**changes: Any) -> Payload:
        own = checked_settings({**table, **changes})
        node = SiteNode(Site("s", path, tmp_path / "work", limits=Limits(epsilon=1.0), pinned=own))
        asked = {"data": {**table, **changes}, "method": "fedavg", "private": True}
        return wire.decode(node.answer("hello", wire.encode(asked)))

    assert labels()["description"]["labels"] == [1, 2, 3]
    assert "unknown-class" in labels(classes=["1", "3"])["error"]  # and not which: that is in the site's log
    assert "label-kinds-differ" in labels(classes=["1", "2", "many"])["error"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"scale": "client"}, "data.scale = 'client'"),
        ({"blocks": "random"}, "data.blocks = 'random'"),
        ({"blocks": "by_class"}, "data.blocks = 'by_class'"),
        ({"blocks": None}, "data.blocks = 'random'"),
    ],
    ids=str,
)
@pytest.mark.parametrize("epsilon", [1.0, None], ids=["limited", "not limited"])
def test_rows_that_depend_on_each_other_are_not_prepared(
    tmp_path: Path, asked: dict[str, Any], code: str, epsilon: float | None
) -> None:
    """Whatever a task says: it is checked where the rows are read, not only before the run."""
    site = Hospital(tmp_path / "site", epsilon, PINNED if epsilon else None)
    honest = site.preparation()
    other = {**honest, "data": {**TABLE, **asked}}
    assert code in site.prepare(**other)["error"]
    assert code in str(site.task(other))
    assert not (site.folder / "privacy.jsonl").exists() or "releases" not in (site.folder / "privacy.jsonl").read_text()


def test_overlapping_windows_are_refused(tmp_path: Path) -> None:
    site = Hospital(tmp_path / "site", None, None)
    windows = {"window": 4, "window_step": 2, "drop": ["name", "ward"]}
    asked = site.agreed(**windows)
    assert "data.window_step = 2 is less than data.window = 4" in site.prepare(**asked)["error"]
    apart = site.agreed(**{**windows, "window_step": 4})
    assert site.prepare(**apart)["error"] is None


def plain_digest(tmp_path: Path) -> str:
    """That of the same rows, which the server may guess."""
    twin = Hospital(tmp_path / "twin", None)
    answer = twin.prepare(False, **twin.agreed())
    assert answer["error"] is None
    return str(answer["digest"])


@pytest.mark.parametrize("epsilon", [1.0, None], ids=["limited", "not limited"])
def test_a_guess_of_the_rows_is_not_confirmed(tmp_path: Path, epsilon: float | None) -> None:
    """A server that knows the digest of the rows gets the same answer as one that does not, whatever it claims."""
    digest, site = plain_digest(tmp_path), Hospital(tmp_path / "site", epsilon)
    honest = site.preparation()
    plain = {key: value for key, value in TRAIN.items() if key != "privacy"}
    for payload in (TRAIN, plain):
        answers = set()
        for order, guess in enumerate((digest, "0" * 64)):
            claimed = {**honest, "private": False, "digest": guess}
            answers.add(site.task(claimed, order, payload, RUN))
        assert len(answers) == 1 and None not in answers, answers


def test_a_run_that_was_announced_as_private_remains_so(tmp_path: Path) -> None:
    """Also at a site without a limit. A run of its own without privacy is not refused there."""
    site = Hospital(tmp_path / "site", None, None)
    honest = site.preparation()
    plain = {key: value for key, value in TRAIN.items() if key != "privacy"}
    assert "announced with [privacy], and the task has none" in str(site.task(honest, 0, plain))
    assert site.prepare(False, **{key: honest[key] for key in ("data", "agreement", "seed")})["error"] is None
    assert "announced with [privacy]" in str(site.task(honest, 0, plain))  # once private, always private
    other = "cd" * 16
    asked = {key: honest[key] for key in ("data", "agreement", "seed")}
    digest = site.prepare(False, other, **asked)["digest"]
    assert site.task({**honest, "digest": digest}, 0, plain, other) is None
    third = "ef" * 16  # not announced, as on a new disk: the first task decides
    assert site.task(honest, 0, TRAIN, third) is None
    assert "announced with [privacy]" in str(site.task(honest, 1, plain, third))


def test_nothing_is_read_for_a_task_that_the_limits_forbid(tmp_path: Path) -> None:
    def read(*_: Any) -> Any:
        raise AssertionError("the rows were read")

    site = SiteNode(Site("s", tmp_path, tmp_path / "work", limits=Limits(epsilon=1.0), pinned=PINNED), read)
    plain = {key: value for key, value in TRAIN.items() if key != "privacy"}
    error = wire.decode(site.answer("task", task_frame(RUN, 0, "s", jobs.TRAIN, plain, {})))["error"]
    assert "limits.epsilon = 1" in error


def test_moments_for_the_scaling_have_noise_and_are_drawn_once(site: Hospital) -> None:
    bounds = {"age": [0.0, 100.0], "pressure": [50.0, 150.0]}
    own = {"label_noise": 10.0, "moment_noise": 5.0, "bounds": bounds}
    asked = site.agreed(scale="federated")
    lacking = site.prepare(**asked, privacy={**own, "bounds": {"age": [0.0, 1.0]}})["error"]
    assert "needs bounds of column 'pressure'" in lacking
    found = [site.prepare(**asked, privacy=own)["moments"] for _ in range(2)]
    assert found[0]["count"] == 42 and (found[0]["mean"] == found[1]["mean"]).all()
    assert (found[0]["squares"] == found[1]["squares"]).all() and (found[0]["squares"] > 0).all()
    lines = (site.folder / "privacy.jsonl").read_text().splitlines()
    assert len(lines) == 1 and '["train",5.0,1.0,1]' in lines[0]
    refusal = site.prepare(**asked, privacy={**own, "bounds": {**bounds, "age": [0.0, 99.0]}, "moment_noise": 0.2})
    assert "privacy budget spent" in refusal["error"] and "limits.epsilon = 1" in refusal["error"]
    mean, deviation = np.full((1, 3), 50, np.float32), np.full((1, 3), 20, np.float32)
    preparation = {
        **asked,
        "digest": site.prepare(**asked, privacy=own)["digest"],
        "mean": mean,
        "deviation": deviation,
    }
    assert site.task(preparation) is None
