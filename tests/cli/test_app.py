"""The command line: what works, and that every mistake is one line that helps."""

from __future__ import annotations

import json
import shlex
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.core import TyperArgument, TyperGroup
from typer.main import get_command

from atoll.cli.app import app
from atoll.run.reader import load
from programs import loaded, program, rounds_done, run, start, wait_until  # noqa: F401 (a fixture)

pytestmark = pytest.mark.usefixtures("loaded")

MESSY = Path(__file__).parents[1] / "data" / "messy"
SHORT = ("--data", "digits", "--clients", 3, "--workers", 0, "--rounds", 2, "--set", "data.rows=300")


def result(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((directory / "result.json").read_text())
    return found


def outcome(directory: Path) -> tuple[Any, Any]:
    """What must not depend on interruptions."""
    found = result(directory)
    return found["candidates"], found["ledger"]


def refused(ended: Any, *words: str) -> None:
    """Exit code 2, and one line that names these: values, and the problem's code in brackets."""
    assert ended.code == 2, ended
    assert ended.err.count("\n") == 1 and ended.err.startswith("atoll: "), ended.err
    assert "Traceback" not in ended.err and "\x1b" not in ended.err
    assert all(word in ended.err for word in words), ended.err


@pytest.fixture(scope="module")
def finished(loaded: None, tmp_path_factory: pytest.TempPathFactory) -> Path:  # noqa: F811
    """A run of two rounds. Not to be changed."""
    path = tmp_path_factory.mktemp("finished") / "run"
    ended = run("run", "fedavg", *SHORT, "--out", path)
    assert ended.code == 0, ended
    return path


# -- what works ---------------------------------------------------------------------------------------------------


def test_the_program_runs_and_shows_what_it_found(tmp_path: Path) -> None:
    """The installed command itself; everything is left to the presets."""
    with program("run", "fedavg", "--data", "digits", "--rounds", 2, "--out", tmp_path / "first") as process:
        out, err = process.communicate(timeout=120)
    assert process.returncode == 0 and err == ""
    assert "round 1/2  error " in out and "round 2/2  error " in out and "\x1b" not in out
    assert "fedavg, 2 rounds, seed 1" in out and f"run directory: {tmp_path / 'first'}\n" in out
    files = {path.name for path in (tmp_path / "first").iterdir()}
    assert files >= {"config.toml", "manifest.json", "events.jsonl", "checkpoints", "models", "result.json"}


def test_quiet_shows_the_result_only(tmp_path: Path) -> None:
    ended = run("run", "fedavg", *SHORT, "--quiet", "--out", tmp_path / "run")
    assert ended.code == 0 and "round 1/2" not in ended.out and "test error" in ended.out and ended.err == ""


def test_without_out_the_next_free_name_is_taken(tmp_path: Path) -> None:
    for number in (1, 2):
        assert run("run", "fedavg", *SHORT, "--quiet", cwd=tmp_path).code == 0
        assert (tmp_path / "runs" / f"fedavg-digits-{number}" / "result.json").exists()


def test_an_experiment_file(tmp_path: Path, finished: Path) -> None:
    """The settings that a run has written down are an experiment file that gives the same run."""
    again = run("run", finished / "config.toml", "--out", tmp_path / "again", "--quiet")
    assert again.code == 0 and outcome(tmp_path / "again") == outcome(finished)


def test_show(finished: Path) -> None:
    ended = run("show", finished)
    assert ended.code == 0 and "fedavg, 2 rounds" in ended.out and f"run directory: {finished}" in ended.out


def test_show_clients_classes_and_json(finished: Path) -> None:
    clients = run("show", finished, "--clients")
    assert clients.code == 0 and "client-002" in clients.out and clients.out == run("clients", finished).out
    classes = run("show", finished, "--classes", "--pick", "final")
    assert classes.code == 0 and "final: rates" in classes.out and "sensitivity" in classes.out
    refused(run("show", finished, "--classes", "--pick", "hihg"), "'hihg'", "'high'", "[unknown-pick]")
    plain = json.loads(run("show", finished, "--json").out)
    assert plain["problems"] == load(finished).problems and plain["candidates"] == result(finished)["candidates"]


def test_lists(tmp_path: Path) -> None:
    methods, datasets, doctor = run("methods"), run("datasets"), run("doctor")
    assert methods.code == datasets.code == doctor.code == 0
    assert "fedavg" in methods.out and "central" in methods.out
    assert all(name in datasets.out for name in ("digits", "wine", "mnist", "svhn", "uci_har"))
    assert "torch" in doctor.out and "cores" in doctor.out and "digits" in doctor.out


def test_partition_prints_and_draws(tmp_path: Path) -> None:
    picture = tmp_path / "who.png"
    ended = run("partition", "digits", "--clients", 5, "--partition", "classes:2", "--out", picture)
    assert ended.code == 0 and "5 clients, 1,797 rows" in ended.out and f"drawn in {picture}" in ended.out
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_a_check_a_refusal_and_the_settings_that_solve_it() -> None:
    """The messy folder: the report fits into 80 columns, a run refuses with the same problems, and one edit helps."""
    label = ("--set", "data.label=diagnosis")
    found = run("data", "check", MESSY, *label)
    assert found.code == 2 and found.err == "" and "island.csv' is empty" in found.out
    tables = [line for line in found.out.splitlines() if line[:1] in "┏┃┡│└"]
    assert len(tables) > 20 and max(map(len, tables)) <= 80
    ended = run("partition", MESSY, *label)
    assert ended.code == 2 and ended.err.startswith("atoll: ") and "[missing-value]" in ended.err
    assert "data.label" not in ended.err and len(ended.err.splitlines()) <= 20
    report = json.loads(run("data", "check", MESSY, *label, "--json").out)
    assert f"\n{report['toml']}\n" in ended.err and report["options"] in ended.err
    solved = [*label, *shlex.split(report["options"])]
    assert run("data", "check", MESSY, *solved).code == 0


def test_partition_shows_clients_that_are_held_out(tmp_path: Path) -> None:
    options = ("--clients", 4, "--set", 'data.holdout_clients=["client-002"]')
    ended = run("partition", "wine", *options, "--out", tmp_path / "who.png")
    assert ended.code == 0 and "3 clients" in ended.out and "client-002 (held out)" in ended.out
    checked = run("data", "check", "wine", "--set", "data.clients=4", *options[2:])
    assert checked.code == 0 and "client-002 (held out)" in checked.out and "alcohol" in checked.out


def test_a_result_names_the_clients_that_were_held_out(tmp_path: Path) -> None:
    held = ("--set", 'data.holdout_clients=["client-002"]')
    ended = run("run", "fedavg", *SHORT, *held, "--quiet", "--out", tmp_path / "run")
    assert ended.code == 0 and "new clients (client-002): error 0." in ended.out


def test_without_a_command_the_help_is_shown() -> None:
    ended = run()
    assert ended.code == 2 and "Usage" in ended.out + ended.err and "resume" in ended.out + ended.err
    assert run("--help").code == 0 and run("run", "--help").code == 0


@pytest.mark.parametrize("command", ["run", "show", "sweep", "predict", "dashboard"])
def test_help_explains_every_argument(command: str) -> None:
    text = " ".join(run(command, "--help").out.replace("│", " ").split())
    group = get_command(app)
    assert isinstance(group, TyperGroup)
    arguments = [one for one in group.commands[command].params if isinstance(one, TyperArgument)]
    assert arguments and all(one.help and one.help[:15] in text for one in arguments)


def test_a_folder_that_is_nearly_right_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "hospitals").mkdir()
    ended = run("run", "fedavg", "--data", f"{tmp_path}/hospital/")
    assert ended.code == 2 and f"did you mean the folder '{tmp_path}/hospitals/'?" in ended.err


# -- stopping and going on ----------------------------------------------------------------------------------------


def test_a_finished_run_that_is_resumed_is_left_alone_and_shown(finished: Path) -> None:
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in finished.rglob("*") if path.is_file()}
    for options in ((), ("--rounds", 2)):
        ended = run("resume", finished, *options)
        assert ended.code == 0 and "finished already" in ended.out and "fedavg, 2 rounds" in ended.out
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in finished.rglob("*") if path.is_file()}
    assert after == before


def test_going_further_equals_a_longer_run(tmp_path: Path) -> None:
    assert run("run", "fedavg", *SHORT, "--quiet", "--out", tmp_path / "short").code == 0
    refused(run("resume", tmp_path / "short", "--rounds", 1), "--rounds 1", "[fewer-rounds-than-planned]")
    assert run("resume", tmp_path / "short", "--rounds", 4, "--quiet").code == 0
    assert run("run", "fedavg", *SHORT, "--rounds", 4, "--quiet", "--out", tmp_path / "long").code == 0
    assert result(tmp_path / "short")["rounds"] == 4
    assert outcome(tmp_path / "short") == outcome(tmp_path / "long")
    # It is the plan from now on: what was killed on the way is resumed to the new end.
    assert (tmp_path / "short" / "config.toml").read_text() == (tmp_path / "long" / "config.toml").read_text()


def test_ctrl_c_stops_after_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    """The installed command, a real SIGINT; then the resumed run equals one that was never stopped."""
    path, whole = tmp_path / "my run", tmp_path / "whole"
    long = ("run", "fedavg", *SHORT, "--rounds", 100)
    process = program(*long, "--out", path)
    wait_until(lambda: rounds_done(path) >= 1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "stopping after this round" in err and f"atoll resume '{path}'" in err and "[run-stopped]" in err
    assert "Traceback" not in err and not (path / "result.json").exists()
    shown = run("show", path)
    assert shown.code == 0 and "not finished" in shown.out and f"atoll resume '{path}'" in shown.out
    assert run("resume", path, "--quiet").code == 0
    assert run(*long, "--quiet", "--out", whole).code == 0
    assert outcome(path) == outcome(whole)


def test_a_pause_that_going_on_would_not_mend_does_not_say_go_on(tmp_path: Path) -> None:
    """Every reply is three rounds late, and two are allowed: nothing ever counts, and no figure is made up for it."""
    path = tmp_path / "run"
    small = ("fedrl.channels=2", "fedrl.cells=1", "fedrl.batch=8", "fedrl.retrain=1", "simulation.staleness=[0,0,0,1]")
    options = [word for setting in small for word in ("--set", setting)]
    data = ("--data", "digits", "--clients", 2, "--workers", 0)
    ended = run("run", "fedrl", *data, "--rounds", 6, "--quiet", "--out", path, *options)
    assert ended.code == 3 and "[round-failed]" in ended.err and "resume" not in ended.err
    shown = run("show", path)
    assert "4 rounds done, not finished" in shown.out and "nan" not in shown.out


def test_too_few_clients_pause_the_run(tmp_path: Path) -> None:
    """A learning rate that no weights survive: every reply is refused, and after three tries the run pauses."""
    ended = run("run", "fedavg", *SHORT, "--out", tmp_path / "run", "--set", "fedavg.lr=1e30")
    assert ended.code == 3 and "round 1 failed (3 of 3)" in ended.out and "nonfinite" in ended.err
    assert "[round-failed]" in ended.err
    assert "atoll resume" in ended.err and "Traceback" not in ended.err


# -- mistakes -----------------------------------------------------------------------------------------------------


def csv(folder: Path, **files: str) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


GOOD_CSV = "a,b,label\n" + "".join(f"{i},{i % 3},{'yes' if i % 2 else 'no'}\n" for i in range(20))


def bad_data(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path / "data"
    if kind == "no label":
        return csv(folder, one=GOOD_CSV, two=GOOD_CSV.replace("label", "target"))
    if kind == "text":
        return csv(folder, one=GOOD_CSV, two=GOOD_CSV.replace("\n3,", "\nthree,"))
    if kind == "one row":
        return csv(folder, one=GOOD_CSV, two="a,b,label\n1,2,yes\n")
    if kind == "no row":
        return csv(folder, one=GOOD_CSV, two="a,b,label\n")
    if kind == "empty":
        return csv(folder)
    csv(folder)
    np.savez(folder / "one.npz", x=np.zeros((9, 2)), y=np.arange(9) % 2)
    (folder / "two.npz").write_bytes((folder / "one.npz").read_bytes()[:-100])
    return folder


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("no label", ["two", "label"]),
        ("text", ["two", "three"]),
        ("one row", ["two"]),
        ("no row", ["two"]),
        ("empty", ["data"]),
        ("npz", ["two.npz"]),
    ],
)
def test_bad_data(tmp_path: Path, kind: str, words: list[str]) -> None:
    folder = bad_data(tmp_path, kind)
    ended = run("run", "fedavg", "--data", folder, "--workers", 0, "--rounds", 1, "--out", tmp_path / "run")
    refused(ended, *words)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fedavgg", "--data", "digits"], ["'fedavgg'", "[no-such-experiment]"]),
        (["fedavg"], ["--data", "[data-not-named]"]),
        (["fedavg", "--data", "digitss"], ["'digitss'", "'digits'"]),
        (["fedavg", "--data", "no/such/folder"], ["no/such/folder"]),
        (["none.toml"], ["none.toml", "[no-such-experiment]"]),
        (["fedavg", "--data", "digits", "--clients", "0"], ["data.clients = 0"]),
        (["fedavg", "--data", "digits", "--clients", "ten"], ["--clients", "'ten'"]),
        (["fedavg", "--data", "digits", "--clients", "5000"], ["5000", "1797"]),
        (["fedavg", "--data", "digits", "--partition", "classes:11"], ["11", "10"]),
        (["fedavg", "--data", "digits", "--partition", "dirichlett:1"], ["dirichlett", "'dirichlet'"]),
        (["fedavg", "--data", "digits", "--rounds", "0"], ["fedavg.rounds = 0", "[invalid-setting]"]),
        (["fedavg", "--data", "digits", "--preset", "big"], ["preset = 'big'", "[unknown-preset]"]),
        (["fedavg", "--data", "digits", "--workers", "-1"], ["engine.workers = -1", "[invalid-setting]"]),
        (["fedavg", "--data", "digits", "--engine", "cloud"], ["engine.name = 'cloud'", "[unknown-engine]"]),
        (["fedavg", "--data", "digits", "--device", "potato"], ["engine.device = 'potato'", "[invalid-setting]"]),
        (["fedavg", "--data", "digits", "--seed", "-1"], ["seed = -1", "[invalid-setting]"]),
        (
            ["fedavg", "--data", "digits", "--set", "fedavg.fraction=1.5"],
            ["fedavg.fraction = 1.5", "[invalid-setting]"],
        ),
        (["fedavg", "--data", "digits", "--set", "fedavg.lr=fast"], ["fedavg.lr = 'fast'", "[invalid-setting]"]),
        (
            ["fedavg", "--data", "digits", "--set", "fedavg.leraning_rate=1"],
            ["fedavg.leraning_rate", "[unknown-setting]"],
        ),
        (["fedavg", "--data", "digits", "--set", "fedavg.model=mlpp"], ["mlpp", "mlp"]),
        (["fedavg", "--data", "digits", "--set", "fedavg"], ["--set fedavg", "[bad-assignment]"]),
        (["fedavg", "--data", "digits", "--rouds", "1"], ["--rouds"]),
        (["fedavg", "--data", "mnist"], ["mnist", "--data-dir"]),
        (["no_such_module:Own", "--data", "digits"], ["no_such_module", "[plugin-not-importable]"]),
        (
            ["atoll.methods.fedavg:Own", "--data", "digits"],
            ["has no Own", "[plugin-lacks-member]"],
        ),
        (["atoll.rng:Generator", "--data", "digits"], ["`name`", "[plugin-lacks-member]"]),
        (["soft_fedavg:SoftFedAvg", "--data", "digits"], ["atoll.methods.fedavg:FedAvg", "[name-registered-twice]"]),
        (["fedavg", "--data", "no_such_module:rows"], ["no_such_module", "[plugin-not-importable]"]),
        (["fedavg", "--data", "mnist", "--data-dir", "no/such/folder"], ["no/such/folder"]),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused(run("run", *arguments, "--out", tmp_path / "run", cwd=tmp_path), *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resume", "."], ["atoll: .: "]),
        (["resume", "nowhere"], ["nowhere"]),
        (["show", "nowhere"], ["nowhere"]),
        (["partition", "digitss"], ["'digitss'"]),
        (["partition", "digits", "--clients", "0"], ["data.clients = 0"]),
        (["partition", "digits", "--set", "data.foo=1"], ["data.foo", "[unknown-setting]"]),
        (["partition", "digits", "--set", "seed=a"], ["seed = 'a'", "[invalid-setting]"]),
        (["partition", "digits", "--out", "picture.doc"], ["picture.doc", "[unknown-figure-format]"]),
        (["partition", "none.toml"], ["none.toml", "[no-such-experiment]"]),
        (["data", "check", "digitss"], ["'digitss'", "'digits'", "[unknown-dataset]"]),
        (["data", "check", "digits", "--set", "data.foo=1"], ["data.foo", "[unknown-setting]"]),
        (["datasets", "fetch", "mnistt", "--data-dir", "."], ["mnistt"]),
        (["datasets", "--data-dir", "no/such/folder"], ["no/such/folder"]),
        (["fly"], ["fly"]),
    ],
)
def test_mistakes_of_other_commands(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    refused(run(*arguments, cwd=tmp_path), *words)
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_only_the_clients_data_refuse_leaves_no_folder(tmp_path: Path) -> None:
    options = ("--data", "digits", "--workers", 0, "--set", "data.split=[0.8,0.0,0.2]")
    refused(run("run", "decnas", *options, "--out", tmp_path / "run"), "[no-validation-rows]")
    assert list(tmp_path.iterdir()) == []


def test_faults_on_purpose_come_from_a_file_and_stay_with_the_run(tmp_path: Path) -> None:
    rules = tmp_path / "faults.toml"
    rules.write_text('[[rule]]\nkind = "nan"\nclients = ["client-001"]\n')
    path = tmp_path / "run"
    assert run("run", "fedavg", *SHORT, "--faults", rules, "--quiet", "--out", path).code == 0
    assert run("resume", path, "--rounds", 3, "--quiet").code == 0
    accounts = json.loads(run("clients", path, "--json").out)["clients"]
    assert accounts["client-001"]["rejected"] == {"nonfinite": 3} and accounts["client-000"]["used"] > 0
    shown = " ".join(run("show", path).out.split())
    assert "client 'client-001'" in shown and "3 were rejected (values that are not finite)" in shown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, ["--faults", "faults.toml", "[no-such-faults-file]"]),
        ("", ["--faults", "faults.toml", "[[rule]]", "[no-fault-rules]"]),
        ("[[rules]]", ["faults.rules", "'rule'", "[unknown-setting]"]),
        ('[[rule]]\nkind = "flipp"', ["'flipp'", "'flip'", "[invalid-setting]"]),
        ('[[rule]]\nkind = "flip"\nclients = ["x"]', ["'x'", "client-000", "[unknown-client]"]),
        ('[[rule]]\nkind = "flip"\nclients = 0.1', ["0.1", "3 clients", "[invalid-setting]"]),
        ('[[rule]]\nkind = "flip"\nfirst = 2\nlast = 1', ["first = 2", "last = 1", "[invalid-setting]"]),
    ],
)
def test_faults_that_cannot_happen_are_one_line(tmp_path: Path, text: str | None, words: list[str]) -> None:
    if text is not None:
        (tmp_path / "faults.toml").write_text(text)
    refused(run("run", "fedavg", *SHORT, "--faults", "faults.toml", "--out", "run", cwd=tmp_path), *words)
    assert not (tmp_path / "run").exists()


def test_fetching_needs_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATOLL_DATA", raising=False)
    refused(run("datasets", "fetch", "mnist", cwd=tmp_path), "mnist", "--data-dir", "[no-download-folder]")


def test_the_real_program_says_one_line_too(tmp_path: Path) -> None:
    with program("run", "fedavg", "--data", "digits", "--set", "fedavg.fraction=1.5", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=60)
    assert process.returncode == 2 and out == "" and err.count("\n") == 1
    assert err.startswith("atoll: fedavg.fraction = 1.5: ") and err.endswith(" [invalid-setting]\n")


def test_long_messages_are_not_wrapped_and_cannot_command_the_terminal(tmp_path: Path) -> None:
    evil = "x\x1b[2Jy" + "z" * 150
    ended = run("run", "fedavg", "--data", evil, cwd=tmp_path)
    refused(ended, "x\\x1b[2Jy", "z" * 150)
    refused(run("run", "[red]fedavg", "--data", "digits", cwd=tmp_path), "[red]fedavg")


def test_a_used_run_directory_is_left_alone(finished: Path) -> None:
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file() and path.name != "lock"}
    refused(run("run", "fedavg", *SHORT, "--out", finished), str(finished), "atoll resume", "--out")
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.parametrize("place", ["/proc/no-such-run", "file", "file/below"])
def test_an_unwritable_run_directory(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_text("mine")
    refused(run("run", "fedavg", *SHORT, "--out", place, cwd=tmp_path), place, "--out")
    assert (tmp_path / "file").read_text() == "mine"


def test_two_processes_on_one_run_directory(tmp_path: Path) -> None:
    path = tmp_path / "run"
    owner = start("run", "fedavg", "--data", "digits", "--workers", 0, "--rounds", 500, "--quiet", "--out", path)
    try:
        wait_until(lambda: rounds_done(path) >= 1)
        refused(run("resume", path), f"process {owner.pid} on ", str(path))
        refused(run("run", "fedavg", *SHORT, "--out", path), str(path))
    finally:
        owner.send(signal.SIGINT)
        assert owner.wait().code == 130
    assert run("show", path).code == 0


def test_a_changed_world_is_refused_unless_accepted(tmp_path: Path, finished: Path) -> None:
    path = tmp_path / "run"
    assert run("run", "fedavg", *SHORT, "--quiet", "--out", path).code == 0
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["versions"]["numpy"] = "1.0.0"
    (path / "manifest.json").write_text(json.dumps(manifest))
    more = ("resume", path, "--rounds", 3, "--quiet")
    refused(run(*more), "versions.numpy", "'1.0.0'", "--accept-changes", "[run-changed]")
    assert run(*more, "--accept-changes").code == 0


def test_a_damaged_run_has_its_own_exit_code(tmp_path: Path) -> None:
    path = tmp_path / "run"
    assert run("run", "fedavg", *SHORT, "--quiet", "--out", path).code == 0
    for checkpoint in (path / "checkpoints").glob("*.json"):
        checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    ended = run("resume", path, "--rounds", 3)
    assert ended.code == 4 and ended.err.count("\n") == 1 and str(path) in ended.err
