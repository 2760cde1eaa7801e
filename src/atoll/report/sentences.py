"""What a run did and found, in sentences: the beginning of every report."""

from __future__ import annotations

from collections.abc import Sequence

from atoll.report.html.charts.scales import amount, count, duration, percent
from atoll.report.reference import Reference, total
from atoll.report.view import Entry, RunView
from atoll.run.accounts import account_of, constant_answer

# What a method does, as the verb of a sentence about a run.
DOINGS = {
    "realtime": "evolved sub-networks of a shared master by error and cost while {clients} trained it",
    "offline": "evolved networks by error and cost, each trained from scratch by {clients}",
    "fedavg": "trained one network by federated averaging over {clients}",
    "central": "trained one network with all rows in one place",
    "moefl": "evolved sparse networks by error and uploaded weights over {clients}",
    "nevofed": "evolved tiny networks on {clients}, without averaging weights",
    "personal": "trained a network for each of {clients}",
    "retrain": "trained given networks side by side over {clients}",
    "retrain_central": "trained given networks side by side with all rows in one place",
    "fedrl": "searched for cells by reinforcement learning over {clients}",
    "fednas": "searched for cells by gradient, with the whole supernet on {clients}",
    "decnas": "shrank a network to falling budgets, with {clients} in groups",
    "netadapt": "shrank a network to falling budgets with all rows in one place",
}


def what_was_run(view: RunView) -> str:
    """Method, data, clients, rounds, seed."""
    about = view.manifest["data"]
    number = int(about["clients"])
    clients = "one client" if number == 1 else f"{number:,} clients"
    doing = DOINGS.get(view.method, "ran over {clients}").format(clients=clients)
    classes = f", {len(view.classes)} classes" if view.classes else ""
    rounds = f"{view.rounds:,} round{'' if view.rounds == 1 else 's'}"
    if view.state != "finished":
        rounds = f"{view.rounds:,} of {view.planned:,} rounds so far" if view.planned else f"{rounds} so far"
    data = f"{view.data} ({int(about['rows']):,} rows{classes})"
    return f"The method {view.method} {doing}: {rounds} on {data}, seed {view.seed}."


def what_was_found(view: RunView) -> list[str]:
    """The recommended network, what it is worth and what it takes; then the cheaper ones."""
    best = view.best
    if best is None:
        return _so_far(view)
    found = [_accuracy(view, best), _size(best)]
    knee = next((entry for entry in view.candidates if "knee" in entry["picks"] and entry is not best), None)
    if knee is not None and "high" in best["picks"]:
        found.append(_against(best, knee))
    if "held_out" in best:
        own = best["held_out"]
        found.append(
            f"On {len(own['clients'])} clients that the search never saw it answers "
            f"{percent(1 - own['test_error'])} of {own['test_rows']:,} rows correctly."
        )
    personal = [entry for entry in view.candidates if entry.get("owner")]
    if personal:
        found.append(_personal(personal))
    return [sentence for sentence in found if sentence]


def _accuracy(view: RunView, best: Entry) -> str:
    name = f"{best['id']} ({view.recommended})" if best["id"] != view.recommended else best["id"]
    number = sum(not entry.get("owner") for entry in view.candidates)
    which = f"It found {number} networks. The recommended one, {name}," if number > 1 else f"The network, {name},"
    if "test" not in best:
        error = best["objectives"].get("error")
        known = (
            "was not measured" if error is None else f"answers {percent(1 - error)} of the validation rows correctly"
        )
        return f"{which} {known}; there were no test rows."
    own = best["test"]
    if "noisy" in own:
        counted = f"{percent(1 - own['test_error'])} of {own['test_rows']:,} test rows of clients"
        return f"{which} answers {counted} correctly, counted with noise."
    return (
        f"{which} answers {percent(1 - own['test_error'])} of {own['test_rows']:,} test rows correctly; "
        f"{constant_answer(own, view.classes)} would be right for {percent(1 - own['baseline_error'])}."
    )


def _size(best: Entry) -> str:
    objectives = best["objectives"]
    if "macs" not in objectives:
        return ""
    image = len(best["architecture"].get("input", ())) == 3
    parts = [f"{count(objectives['macs'])} multiply-accumulates for one {'image' if image else 'row'}"]
    if "params" in objectives:
        parts.append(f"{int(objectives['params']):,} weights")
    return f"It takes {' and has '.join(parts)}."


def _against(best: Entry, knee: Entry) -> str:
    here, there = best["objectives"], knee["objectives"]
    cost = next((name for name in ("macs", "connections", "params") if name in here and there.get(name)), None)
    if cost is None or "test" not in knee or "test" not in best:
        return ""
    ratio = here[cost] / there[cost]
    word = {"macs": "multiply-accumulates", "connections": "uploaded weights", "params": "weights"}[cost]
    points = 100 * (knee["test"]["test_error"] - best["test"]["test_error"])
    loss = (
        f"{abs(points):.1f} points {'fewer' if points > 0 else 'more'} correct"
        if abs(points) >= 0.05
        else "as many correct"
    )
    return f"The knee of the front, {knee['id']}, needs {ratio:.1f} times fewer {word}, with {loss}."


def _personal(entries: Sequence[Entry]) -> str:
    own = [entry["clients"][entry["owner"]] for entry in entries if entry["owner"] in entry.get("clients", {})]
    rows = sum(one["test_rows"] for one in own)
    if not rows:
        return f"{len(entries)} clients also have a network of their own."
    right = sum((1 - one["test_error"]) * one["test_rows"] for one in own)
    return (
        f"{len(entries)} clients have a network of their own; on its own client each, together they answer "
        f"{percent(right / rows)} of {rows:,} test rows correctly."
    )


def _so_far(view: RunView) -> list[str]:
    errors = view.digest.series.get("error")
    if errors is None or not len(errors):
        return ["No error has been measured yet."]
    lowest = min(errors.values)
    now, best = percent(1 - errors.last), percent(1 - lowest)
    rows = f"the {view.measured_on.removeprefix('the ')}"
    return [f"In the last round {now} of {rows} were answered correctly; the most in a round were {best}."]


def what_it_cost(view: RunView, reference: Reference | None) -> list[str]:
    """Bytes, multiply-accumulates and time, and the same as a multiple of federated averaging."""
    spent = total(view)
    seconds = (
        view.result["wall_seconds"] if view.result is not None else (view.digest.seconds.last if view.rounds else 0)
    )
    virtual = f", {duration(spent.simulated_seconds)} on the virtual network" if spent.simulated_seconds else ""
    if view.manifest.get("centralised"):
        return [
            f"Training took {count(spent.client_macs)} multiply-accumulates and {duration(seconds)} on this machine."
        ]
    cost = (
        f"The clients sent {amount(spent.bytes_up)}, received {amount(spent.bytes_down)} and computed "
        f"{count(spent.client_macs)} multiply-accumulates in {duration(seconds)} on this machine{virtual}."
    )
    found = [cost]
    if reference is not None:
        found.append(
            f"That is {times(spent.bytes_up, reference.account.bytes_up)} the upload and "
            f"{times(spent.client_macs, reference.account.client_macs)} the computation of federated averaging of "
            f"{reference.network} for {reference.rounds:,} rounds ({'measured' if reference.measured else 'computed'})."
        )
    return found


def times(amount_here: float, amount_there: float) -> str:
    """A ratio in words."""
    if not amount_there:
        return "an unknown multiple of"
    ratio = amount_here / amount_there
    if ratio < 0.1:
        return f"{percent(ratio)} of"
    return f"{ratio:.2g} times" if ratio < 10 else f"{ratio:,.0f} times"


def who_took_part(view: RunView) -> str:
    """How many clients replied, and what became of the replies."""
    if view.manifest.get("centralised") or not view.clients:
        return ""
    accounts = {name: account_of(own) for name, own in view.clients.items()}
    asked = sum(own.asked for own in accounts.values())
    used = sum(own.used + own.late for own in accounts.values())
    active = sum(1 for own in accounts.values() if own.used or own.late)
    who = "All" if active == len(accounts) else f"{active:,} of"
    replies = "all of their" if used == asked else f"{used:,} of"
    return f"{who} {len(accounts):,} clients took part; {replies} {asked:,} replies were used."


def paragraphs(view: RunView, reference: Reference | None) -> list[str]:
    """The beginning of a report."""
    return [
        what_was_run(view),
        " ".join(what_was_found(view)),
        " ".join([*what_it_cost(view, reference), who_took_part(view)]).strip(),
    ]
