"""A run in the terminal: its networks, its clients, the classes of a network, and what to do next.

Tables fit the width of the console: columns that do not are left out, and long names are folded.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from atoll.core.messages import printable
from atoll.errors import RunDirectoryError
from atoll.report.figures.canvas import short
from atoll.report.terminal import amount, cell
from atoll.run.accounts import (
    account_of,
    client_problems,
    constant_answer,
    no_better_than_constant,
    privacy_sentences,
)
from atoll.run.reader import Run
from atoll.training.metrics import class_rates

MOST_NETWORKS = 20  # that a table lists besides the picks for all clients
MOST_PROBLEMS = 10
MOST_MISTAKES = 10
HEADINGS = {"macs": "MACs", "upload_bytes": "upload", "test_f1": "test F1"}
RATES = {"sensitivity": "sensitivity", "specificity": "specificity", "ppv": "PPV", "npv": "NPV"}

Entry = Mapping[str, Any]  # of a candidate in result.json


class Column(NamedTuple):
    """A column of a table; text in it is external and not yet escaped."""

    heading: str
    cells: Sequence[str]
    left: bool = False
    widest: int = 100  # longer text is folded

    @property
    def width(self) -> int:
        return min(self.widest, max(cell_len(printable(text)) for text in (self.heading, *self.cells)))


def fitted_table(title: str, needed: Sequence[Column], others: Sequence[Column], width: int) -> Table:
    """A table of the `needed` columns, and of those `others` that fit into this width."""
    table = Table(title=cell(title), title_justify="left")
    chosen, left = list(needed), width - 1 - sum(column.width + 3 for column in needed)
    for column in others:
        if column.width + 3 <= left and any(column.cells):
            chosen.append(column)
            left -= column.width + 3
    for column in chosen:
        table.add_column(
            cell(column.heading), justify="left" if column.left else "right", overflow="fold", max_width=column.width
        )
    for row in zip(*(column.cells for column in chosen), strict=True):
        table.add_row(*map(cell, row))
    return table


# -- a run -----------------------------------------------------------------------------------------------------------


def show_run(console: Console, run: Run) -> None:
    """The networks, the cost and the problems of a finished run; for an unfinished one, its progress."""
    if not run.finished:
        _show_unfinished(console, run)
        return
    result = run.result
    candidates, hidden = _listed(result["candidates"])
    console.print(_networks(result, candidates, console.width))
    if hidden:
        _say(console, f"and {hidden} more networks; all are in: atoll show {_path(run)} --json")
    if any(_test(entry).startswith("(") for entry in candidates):
        _say(console, "test: of the network as it is handed over; in brackets as the search measured it")
    _show_baseline(console, run)
    ledger = result["ledger"]
    simulated = ledger["simulated_seconds"]
    _say(
        console,
        f"clients sent {amount(ledger['bytes_up'])}, received {amount(ledger['bytes_down'])}, "
        f"computed {short(ledger['client_macs'])} MACs; {result['wall_seconds']:.0f} s"
        + (f", {simulated:,.1f} s on the virtual network" if simulated else ""),
    )
    _show_privacy(console, result)
    show_problems(console, run)
    _say(console, f"run directory: {run.path}", wrap=False)


def _show_privacy(console: Console, result: Mapping[str, Any]) -> None:
    """What clients have spent under `[privacy]`, and what no account covers."""
    if "privacy" in result:
        for text in privacy_sentences(result["privacy"]):
            _say(console, text)


def show_problems(console: Console, run: Run) -> None:
    """What went wrong in a run, in a few lines."""
    found = run.problems
    for text in found[:MOST_PROBLEMS]:
        _say(console, f"note: {text}", style="yellow")
    if len(found) > MOST_PROBLEMS:
        _say(console, f"and {len(found) - MOST_PROBLEMS} more notes; see: atoll clients {_path(run)}", style="yellow")


def show_next(console: Console, run: Run) -> None:
    """Suggest what to do with a finished run. A network that is no better than chance is not offered for use."""
    path, pick = _path(run), run.recommended
    entry = recommended_entry(run) or {}
    about = entry.get("about", {})
    image = len(entry.get("architecture", {}).get("input", ())) == 3
    evolved = entry.get("architecture", {}).get("space") == "genome"
    lines = [("report", f"atoll report {path} -o report.html  # one file with everything, for a browser")]
    if evolved:
        lines.append(("explain", f"atoll explain {path}"))
    if entry and not no_better_than_constant(entry):
        lines.append(
            ("predict", f"atoll predict {path} {'image.png' if image else 'new.csv'}  # raw data, by {pick!r}")
        )
        lines.append(("export", f"atoll export {path} -o net.onnx  # a file that needs no Atoll, by {pick!r}"))
    if about.get("trained_rounds"):
        rounds = about["trained_rounds"]
        lines.append(
            ("train", f"atoll retrain {path} --pick {pick}  # its networks had only {rounds} rounds of training")
        )
    if "derived" in about:
        lines.append(("train", f"atoll retrain {path} --pick {pick}  # what was found was not trained by itself"))
    if "ended" in about:
        # A search that has ended by its own rule cannot be continued, but its networks can be tuned.
        why = about["ended"]
        lines.append(("tune", f"atoll retrain {path} --from found --pick {pick}  # the search is over: {why}"))
    elif run.result.get("stopped") is None and run.result["rounds"] == run.result["planned_rounds"]:
        lines.append(("continue", f"atoll resume {path} --rounds {2 * run.result['rounds']}"))
    elif entry and not evolved and not about.keys() & {"derived", "trained_rounds"}:
        # More rounds would end at once by the same rule: its networks can go on.
        why = str(run.result.get("stopped") or "it has ended by its own rule").partition(":")[0]
        central = " --central" if run.manifest.get("centralised") else ""
        lines.append(("tune", f"atoll retrain {path} --from found --pick {pick}{central}  # the run is over: {why}"))
    for what, how in lines:
        _say(console, f"{what + ':':<10}{how}", wrap=False)


def plain_run(run: Run) -> dict[str, Any]:
    """Everything that `show` knows, for programs: the result, or the state of an unfinished run."""
    head: dict[str, Any] = {"path": str(run.path), "recommended": run.recommended, "problems": run.problems}
    if run.finished:
        return head | run.result
    rounds = run.rounds
    last = rounds[-1]["metrics"] if rounds else {}
    state = {"method": run.manifest["method"], "status": "unfinished", "rounds": len(rounds), "metrics": last}
    return head | state | {"clients": run.clients}


def _show_unfinished(console: Console, run: Run) -> None:
    done = run.rounds
    last = done[-1]["metrics"].get("error") if done else None
    error = "" if last is None else f", error {last:.4f}"
    _say(console, f"{run.path}: {run.manifest['method']}, {len(done)} rounds done{error}, not finished", wrap=False)
    show_problems(console, run)
    _say(console, f"continue with: atoll resume {_path(run)}", wrap=False)


def recommended_entry(run: Run) -> Entry | None:
    """The recommended network in the result; None if the method did not pick one under that name."""
    entries = ((entry, (entry["id"], *entry["picks"])) for entry in run.result["candidates"])
    return next((entry for entry, names in entries if run.recommended in names), None)


def _networks(result: Mapping[str, Any], candidates: Sequence[Entry], width: int) -> Table:
    needed = [
        Column("network", [entry["id"] for entry in candidates], left=True, widest=26),
        # A pick that is the network's own name says nothing more.
        Column("picks", [_picks(entry) for entry in candidates], left=True, widest=16),
        Column("error", [_value("error", entry["objectives"].get("error")) for entry in candidates]),
        Column("test", [_test(entry) for entry in candidates]),
    ]
    names = dict.fromkeys(name for entry in candidates for name in entry["objectives"])
    others = [
        Column(
            HEADINGS.get(name, name.replace("_", " ")),
            [_value(name, entry["objectives"].get(name)) for entry in candidates],
            widest=16,
        )
        for name in names
        if name not in ("error", "test_error")
    ]
    others.append(Column("pruned", [str(entry.get("about", {}).get("layer", "")) for entry in candidates], left=True))
    title = f"{result['method']}, {result['rounds']} rounds, seed {result['seed']}"
    return fitted_table(title, needed, others, width)


def _listed(candidates: Sequence[Entry]) -> tuple[list[Entry], int]:
    """The candidates that a table shows, and how many it leaves out: never a pick that serves all clients."""
    if len(candidates) <= MOST_NETWORKS:
        return list(candidates), 0
    others = [entry for entry in candidates if entry.get("owner") or not entry["picks"]]
    left_out = {id(entry) for entry in others[MOST_NETWORKS:]}
    return [entry for entry in candidates if id(entry) not in left_out], len(left_out)


def _show_baseline(console: Console, run: Run) -> None:
    entry = recommended_entry(run) or {}
    for part, where in (("test", "test rows"), ("held_out", "rows of new clients")):
        if part not in entry:
            continue
        own = entry[part]
        if "baseline_error" not in own:  # under [privacy]
            error = f"error {own['test_error']:.4f} of {run.recommended!r} on {own['test_rows']:,} {where} of clients"
            _say(console, f"{error}, with noise")
            continue
        answer = constant_answer(own, run.classes)
        if part == "test":
            _say(console, f"{answer}: error {own['baseline_error']:.4f} on {own['test_rows']:,} {where}")
        else:
            names = list(own["clients"])
            named = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
            _say(
                console,
                f"new clients ({named}): error {own['test_error']:.4f} of {run.recommended!r} on "
                f"{own['test_rows']:,} rows ({answer}: {own['baseline_error']:.4f})",
            )


def _picks(entry: Entry) -> str:
    return ", ".join(pick for pick in entry["picks"] if pick != entry["id"])


def _test(entry: Entry) -> str:
    if "test" in entry:
        return f"{entry['test']['test_error']:.4f}"
    measured = entry["objectives"].get("test_error")
    return "" if measured is None else f"({measured:.4f})"


def _value(name: str, value: float | None) -> str:
    if value is None:
        return ""
    if name.endswith(("error", "f1", "psi")):
        return f"{value:.4f}"
    if name.endswith("bytes"):
        return amount(value)
    if value >= 100_000:
        return short(value)
    return f"{value:,.0f}" if value == int(value) else f"{value:,.4g}"


# -- its clients -----------------------------------------------------------------------------------------------------


def show_clients(console: Console, run: Run) -> None:
    """What became of each client's replies, and the recommended network on its test rows."""
    clients = run.clients
    names = list(clients)
    counts: dict[str, list[int]] = {}
    for word in ("asked", "used", "late", "stale", "rejected", "failed"):
        counts[word] = [_number(getattr(account_of(clients[name]), word)) for name in names]
    counts["strikes"] = [account_of(clients[name]).strikes for name in names]
    counts["idle"] = [int(clients[name]["idle"]) for name in names]
    needed = [Column("client", names, left=True, widest=24)]
    needed += [
        Column(word, [str(count) for count in row])
        for word, row in counts.items()
        if any(row) or word in ("asked", "used", "idle")
    ]
    spent = [f"{clients[name]['epsilon']:.3g}" if "epsilon" in clients[name] else "" for name in names]
    needed += [Column("epsilon", spent)] if any(spent) else []
    entry: Entry = (recommended_entry(run) if run.finished else None) or {}
    measured = entry.get("clients", {})
    others = [
        Column("error", [_of(measured.get(name), "test_error") for name in names]),
        Column("own", _own_errors(run, names)),
        Column("rows", [f"{measured[name]['test_rows']:,}" if name in measured else "" for name in names]),
        Column("baseline", [_of(measured.get(name), "baseline_error") for name in names]),
        Column("F1", [_of(measured.get(name), "test_f1") for name in names]),
    ]
    console.print(fitted_table(f"{len(names)} clients", needed, others, console.width))
    if measured:
        own = "; own: of the client's own network" if any(others[1].cells) else ""
        _say(
            console,
            f"error: of {run.recommended!r} on the client's test rows{own}; baseline: of always answering the most "
            "frequent class; idle: rounds without a task",
        )
    for text in client_problems(clients):
        _say(console, f"note: {text}", style="yellow")


def _number(value: int | Mapping[str, int]) -> int:
    return value if isinstance(value, int) else sum(value.values())


def _of(metrics: Mapping[str, Any] | None, name: str) -> str:
    return "" if metrics is None or name not in metrics else f"{metrics[name]:.4f}"


def _own_errors(run: Run, names: Sequence[str]) -> list[str]:
    """The test error of each client's own network, for methods that find such."""
    found = {}
    for entry in run.result["candidates"] if run.finished else ():
        owner = entry.get("owner")
        if owner is not None:
            found[owner] = _of(entry.get("clients", {}).get(owner), "test_error")
    return [found.get(name, "") for name in names]


# -- the classes of a network ----------------------------------------------------------------------------------------


def show_classes(console: Console, run: Run, pick: str | None = None) -> None:
    """The confusion matrix of a network on test rows, and the rates of each class."""
    name = pick or run.recommended
    confusion = np.array(confusion_of(run, name), np.int64)
    classes, width = run.classes, console.width
    columns = [Column("true class", classes, left=True, widest=16)]
    columns += [
        Column(answer, [str(count) for count in confusion[:, place].tolist()], widest=12)
        for place, answer in enumerate(classes)
    ]
    title = f"{name}: rows by true class and answer"
    if 1 + sum(column.width + 3 for column in columns) <= width:
        console.print(fitted_table(title, columns, [], width))
    else:
        _show_mistakes(console, confusion, classes)
    rates = class_rates(confusion)
    table = [Column("class", classes, left=True, widest=20), Column("rows", [f"{own['rows']:,}" for own in rates])]
    table += [Column(heading, [rate(own[key]) for own in rates]) for key, heading in RATES.items()]
    console.print(fitted_table(f"{name}: rates of each class against all others", table, [], width))


def confusion_of(run: Run, pick: str) -> Sequence[Sequence[int]]:
    """The confusion matrix of a network on all test rows; `RunDirectoryError` if the result has none."""
    measured = run.candidate(pick).get("test", {})
    if "confusion" not in measured:
        reason = "the data has too many classes" if measured else "it was not measured on test rows"
        if "noisy" in measured:
            reason = "under [privacy] clients only count correct rows"
        raise RunDirectoryError(
            f"{run.path}: no confusion matrix of '{pick}', {reason}; networks with picks have one where there are "
            "test rows",
            code="no-confusion-matrix",
        )
    found: Sequence[Sequence[int]] = measured["confusion"]
    return found


def rate(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _show_mistakes(console: Console, confusion: Any, classes: Sequence[str]) -> None:
    """The most frequent mistakes, where a matrix of all classes is too wide."""
    wrong = confusion - np.diag(np.diagonal(confusion))
    _say(console, f"{len(classes)} classes are too many for a matrix here; the most frequent mistakes:")
    for place in np.argsort(-wrong, axis=None, kind="stable")[:MOST_MISTAKES].tolist():
        true, answer = divmod(place, len(classes))
        if wrong[true, answer]:
            rows = int(confusion[true].sum())
            _say(console, f"  {classes[true]!r} answered as {classes[answer]!r}: {wrong[true, answer]} of {rows} rows")


def _path(run: Run) -> str:
    return shlex.quote(str(run.path))


def _say(console: Console, text: str, style: str = "", wrap: bool = True) -> None:
    console.print(printable(text), style=style, markup=False, highlight=False, soft_wrap=not wrap)
