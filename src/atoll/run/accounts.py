"""What became of each client's replies over a run, and what a reader of its result must be warned of."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from atoll.core.ledger import ClientAccount
from atoll.privacy.settings import with_earlier

Plain = Mapping[str, Any]

KIND, PLACE = re.compile(r"^\w+(Error|Exception): "), re.compile(r" \(\w+, line \d+\)$")
NAMES = 5  # clients that are named in one sentence
STARVED = 0.5  # of a fair share: with less a client is named
NO_REPLY = "no reply within"  # how the failure begins of a task that missed a deadline
FEWEST_REPLIES = 4  # of an average client, before shares of them say anything
# The first words of a rejection, see `atoll.core.checks`.
REJECTIONS = {
    "nonfinite": "values that are not finite",
    "schema": "not what the task asks for",
    "dtype": "arrays of another type",
    "shape": "arrays of another shape",
    "count": "counts that cannot be right",
    "mask": "weights that do not fit the network",
    "genome": "not a valid genome",
    "norm": "updates out of all proportion",
    "size": "longer than the task allows",
    "frame": "damaged messages",
}


def clients_so_far(events: Iterable[Plain]) -> dict[str, dict[str, Any]]:
    """The accounts of the clients that were asked in these rounds, in the form of `result.json`."""
    # Attempts of a round that failed are part of the account of the attempt that did not.
    by_round: dict[int, Plain] = {event["round"]: event.get("clients", {}) for event in events}
    totals: dict[str, ClientAccount] = {}
    for accounts in by_round.values():
        for name, own in accounts.items():
            totals.setdefault(name, ClientAccount()).add(ClientAccount(**own))
    return {name: own.report(len(by_round)) for name, own in totals.items()}


def client_problems(clients: Mapping[str, Plain]) -> list[str]:
    """Sentences about clients that were set aside, that never took part, or whose replies were not all used."""
    accounts = {name: account_of(plain) for name, plain in clients.items()}
    aside = [
        f"client {name!r} was set aside in round {own.set_aside}: of {own.asked} tasks {_outcomes(own)}"
        for name, own in accounts.items()
        if own.set_aside
    ]
    accounts = {name: own for name, own in accounts.items() if not own.set_aside}
    never = [
        f"client {name!r} never took part: of {own.asked} tasks {_outcomes(own) or 'none was answered'}"
        for name, own in accounts.items()
        if own.useless
    ]
    idle = [name for name, own in accounts.items() if not own.asked]
    if idle:
        who = f"client {idle[0]!r} was" if len(idle) == 1 else f"{len(idle)} clients were"
        named = "" if len(idle) == 1 else f": {listed(idle)}"
        never.append(f"{who} never asked{named}")
    partly = {name: own for name, own in accounts.items() if not own.useless and (own.rejected or own.failed)}
    ranked = sorted(partly, key=lambda name: -_lost(partly[name]))
    lost = [f"client {name!r}: of {partly[name].asked} tasks {_outcomes(partly[name])}" for name in ranked]
    return aside + never + _starved(accounts) + lost


def fair_shares(accounts: Mapping[str, ClientAccount]) -> dict[str, float]:
    """The replies of each client that counted, as a multiple of the mean of all clients that are not set aside. Empty
    where there are so few replies that shares of them say nothing."""
    counted = {name: own.used + own.late for name, own in accounts.items() if not own.set_aside}
    mean = sum(counted.values()) / max(1, len(counted))
    return {name: number / mean for name, number in counted.items()} if mean >= FEWEST_REPLIES else {}


def _starved(accounts: Mapping[str, ClientAccount]) -> list[str]:
    """A sentence about clients that come late so often that they count less than half as much as an average client."""
    used = {name: own.used + own.late for name, own in accounts.items()}
    fair = sum(used.values()) / max(1, len(used))
    shares = fair_shares(accounts)
    found = [name for name in shares if shares[name] < STARVED and (_late(accounts[name]) or _timeouts(accounts[name]))]
    if not found:
        return []
    if len(found) == 1:
        text = f"replies of client {found[0]!r} were used {used[found[0]]} times"
        text += f", less than half of its fair share of {fair:.0f}"
    else:
        counts = ", ".join(f"{name!r} {used[name]}" for name in found[:NAMES])
        more = f" and {len(found) - NAMES} more" if len(found) > NAMES else ""
        text = f"replies of {len(found)} clients were used less than half of their fair share of {fair:.0f} times"
        text += f": {counts}{more}"
    hints = []
    if any(_timeouts(accounts[name]) for name in found):
        hints.append("a longer engine.deadline gives slow clients more time")
    if any(_late(accounts[name]) for name in found):
        hints.append("engine.fair = 1 waits for them every other round; a higher engine.quorum waits for more clients")
    return [f"{text}; {'; '.join(hints)}"]


def _late(own: ClientAccount) -> bool:
    """Whether a reply of it came after its exchange, or is still to come."""
    return own.stale > 0 or own.late > 0 or own.asked > own.used + own.late + _lost(own)


def _timeouts(own: ClientAccount) -> int:
    """The tasks that it did not answer within a deadline."""
    return sum(number for reason, number in own.failed.items() if reason.startswith(NO_REPLY))


def privacy_sentences(privacy: Plain) -> list[str]:
    """What the clients of a finished run have spent under `[privacy]`, and what is outside of every account."""
    each = [own["epsilon"] for own in privacy["clients"].values()]
    span = f"{max(each):.3g}" if max(each) - min(each) < 0.005 else f"{min(each):.3g} to {max(each):.3g}"
    budget = f"{privacy['epsilon']:g} at delta {privacy['delta']:g}"
    found = [f"privacy: each client has spent epsilon {span} of {budget}, for single rows"]
    found += with_earlier(privacy, max(each))
    over = [name for name, own in privacy["clients"].items() if own.get("spent")]
    if over:
        found.append(
            f"privacy: {len(over)} of {len(each)} clients spent their budget and were left out: {listed(over)}"
        )
    return [*found, f"privacy: not covered: {'; '.join(privacy['not_covered'])}"]


def network_problems(candidate: Plain, pick: str, classes: Sequence[str]) -> list[str]:
    """Sentences about the recommended network: a search that was cut short, or an error no better than chance."""
    about = candidate.get("about", {})
    found = [str(about["stopped"])] if "stopped" in about else []
    if "diverged" in about:
        found.append(f"the network that was found diverged {about['diverged']}")
    if "exceeds" in about:
        found.append(f"the network {pick!r} is beyond the limits of the search: it has {about['exceeds']}")
    if about.get("trained_rounds") == 0:
        found.append(f"the network {pick!r} was not trained, each client trained alone; pick personal-CLIENT instead")
    elif no_better_than_constant(candidate):
        own = candidate["test"]
        found.append(
            f"the network {pick!r} is no better than {constant_answer(own, classes)}: test error "
            f"{own['test_error']:.4f} against {own['baseline_error']:.4f}; more rounds or other settings may help"
        )
    return found


def no_better_than_constant(candidate: Plain) -> bool:
    """Whether the network's test error is no lower than that of the best constant answer, as far as that is known."""
    own = candidate.get("test")
    return own is not None and "baseline_error" in own and own["test_error"] >= own["baseline_error"]


def constant_answer(measured: Plain, classes: Sequence[str]) -> str:
    """The best answer that never changes, in words."""
    rows = [sum(row) for row in measured.get("confusion", ())]
    if len(rows) != len(classes):
        return "always answering the most frequent class"
    return f"always answering {classes[rows.index(max(rows))]!r}"


def account_of(plain: Plain) -> ClientAccount:
    """The account from its form in `result.json`."""
    return ClientAccount(**{name: value for name, value in plain.items() if name != "idle"})


def listed(names: Sequence[str], most: int = NAMES) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _outcomes(own: ClientAccount) -> str:
    """What became of the replies that were not used: `3 were rejected (values that are not finite)`."""
    parts = []
    for word, counts in (("rejected", own.rejected), ("failed", own.failed)):
        if counts:
            number = sum(counts.values())
            verb = word if word == "failed" else f"{'was' if number == 1 else 'were'} {word}"
            reasons = (
                f"{readable_reason(reason)}{f', {n}' if len(counts) > 1 else ''}" for reason, n in counts.items()
            )
            parts.append(f"{number} {verb} ({'; '.join(reasons)})")
    if own.stale:
        parts.append(f"{own.stale} came too late")
    return ", ".join(parts)


def readable_reason(text: str) -> str:
    """A client's error without the kind of exception, its place in the code, and control characters."""
    plain = PLACE.sub("", KIND.sub("", REJECTIONS.get(text, text)))
    return "".join(character if character.isprintable() else " " for character in plain)


def _lost(own: ClientAccount) -> int:
    return sum(own.rejected.values()) + sum(own.failed.values())
