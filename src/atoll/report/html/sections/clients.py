"""The clients: their data, what became of their replies, and how good the network is on their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from atoll.report.html.charts.bars import class_bars, histogram, share_legend, shares
from atoll.report.html.charts.scales import percent, plain
from atoll.report.html.markup import Html, tag
from atoll.report.html.page import section
from atoll.report.html.tables import TableColumn, table
from atoll.report.reference import client_rows
from atoll.report.view import RunView
from atoll.run.accounts import account_of, fair_shares, privacy_sentences, readable_reason

MOST = 300  # rows of the table
FEWEST = 8  # clients for a histogram
FATES = (
    ("used", "c0", "used"),
    ("late", "c4", "late, used later"),
    ("stale", "c1", "too late"),
    ("rejected", "c3", "rejected"),
    ("failed", "c6", "no reply or an error"),
)


def clients_section(view: RunView, prefix: str = "") -> Html | None:
    """A row for each client, histograms over them, and why replies were lost."""
    accounts = view.clients
    if not accounts or view.manifest.get("centralised"):
        return None
    rows, measured = client_rows(view), (view.best or {}).get("clients", {})
    parts: list[Html | None] = [
        _legends(view, accounts),
        _table(view, accounts, rows, measured),
        tag("div", [one for one in _histograms(view, accounts, rows, measured) if one is not None], class_="charts"),
        _reasons(accounts),
        _privacy(view),
    ]
    return section(
        f"{prefix}clients",
        "The clients",
        parts,
        lead="What each holds, how often it answered, and the network on its rows.",
    )


def _privacy(view: RunView) -> Html | None:
    """What clients have spent under `[privacy]`."""
    found = view.result.get("privacy") if view.result else None
    if found is None:
        return None
    return tag("div", tag("h3", "Privacy"), [tag("p", text) for text in privacy_sentences(found)])


def _count(value: Any) -> int:
    return sum(value.values()) if isinstance(value, Mapping) else int(value)


def _legends(view: RunView, accounts: Mapping[str, Any]) -> Html | None:
    present = [(look, word) for fate, look, word in FATES if any(_count(own.get(fate, 0)) for own in accounts.values())]
    return share_legend(present) if len(present) > 1 else None


def class_counts(view: RunView, name: str, measured: Mapping[str, Any]) -> list[int]:
    """A client's rows of each class: of its training rows if it shared them, else of its test rows."""
    shared = (view.manifest.get("clients") or {}).get(name, {}).get("labels")
    if shared is not None:
        return [int(number) for number in shared]
    return [sum(row) for row in measured.get(name, {}).get("confusion", ())]


def _table(
    view: RunView, accounts: Mapping[str, Any], rows: Mapping[str, Mapping[str, int]], measured: Mapping[str, Any]
) -> Html:
    own_errors = {
        entry["owner"]: entry["clients"][entry["owner"]]["test_error"]
        for entry in view.candidates
        if entry.get("owner") and entry["owner"] in entry.get("clients", {})
    }
    labelled = {name: class_counts(view, name, measured) for name in accounts}
    words = "training" if any("labels" in own for own in (view.manifest.get("clients") or {}).values()) else "test"
    words = f"{words} rows by class"
    lost = [
        fate
        for fate in ("late", "stale", "rejected", "failed")
        if any(_count(own.get(fate, 0)) for own in accounts.values())
    ]
    uneven = {"late", "stale"} & set(lost)  # only then replies of some count less for being slow
    fair = fair_shares({name: account_of(own) for name, own in accounts.items()}) if uneven else {}
    columns = [TableColumn("client", False)]
    columns += [TableColumn("rows")] if rows else []
    columns += [TableColumn(words, False)] if any(labelled.values()) else []
    columns += [
        TableColumn("replies", False),
        TableColumn("asked"),
        TableColumn("used"),
        *map(TableColumn, lost),
        *([TableColumn("of a fair share")] if fair else []),
        TableColumn("idle"),
    ]
    is_private = any("epsilon" in own for own in accounts.values())
    columns += [TableColumn("epsilon"), TableColumn("delta")] if is_private else []
    columns += [TableColumn("test accuracy"), TableColumn("weighted F1")] if measured else []
    columns += [TableColumn("own network")] if own_errors else []
    body = []
    names = list(accounts)[:MOST]
    for name in names:
        own = accounts[name]
        cells: list[object] = [name]
        if rows:
            cells.append(f"{sum(rows.get(name, {}).values()):,}")
        if any(labelled.values()):
            cells.append(_class_bar(labelled[name], view.classes))
        cells += [
            _reply_bar(own),
            f"{own['asked']:,}",
            f"{own['used']:,}",
            *(f"{_count(own.get(fate, 0)):,}" for fate in lost),
        ]
        if fair:
            cells.append(f"{fair[name]:.2f}" if name in fair else "")
        cells.append(f"{own['idle']:,}")
        if is_private:
            cells += [f"{own.get('epsilon', 0):.3g}", f"{own.get('delta', 0):g}"]
        if measured:
            found = measured.get(name)
            cells.append("" if found is None else percent(1 - found["test_error"]))
            cells.append(f"{found['test_f1']:.3f}" if found is not None and "test_f1" in found else "")
        if own_errors:
            cells.append(percent(1 - own_errors[name]) if name in own_errors else "")
        body.append(cells)
    parts: list[object] = [table(columns, body, label="Clients", sortable=True)]
    if len(accounts) > MOST:
        parts.append(
            tag("p", f"The first {MOST} of {len(accounts):,} clients; all are in result.json.", class_="muted small")
        )
    return tag("div", parts)


def _reply_bar(own: Mapping[str, Any]) -> Html:
    parts = [(_count(own.get(fate, 0)), look, word) for fate, look, word in FATES]
    return shares(parts, max(1, sum(value for value, _, _ in parts)))


def _class_bar(counts: Sequence[int], classes: Sequence[str]) -> Html | str:
    return class_bars(list(zip(classes, counts, strict=False))) if counts else ""


def _histograms(
    view: RunView, accounts: Mapping[str, Any], rows: Mapping[str, Mapping[str, int]], measured: Mapping[str, Any]
) -> list[Html | None]:
    if len(accounts) < FEWEST:
        return []
    share = [account_of(own) for own in accounts.values()]
    answered = [(own.used + own.late) / own.asked for own in share if own.asked]
    return [
        histogram(
            "Rows of the clients", [float(sum(own.values())) for own in rows.values()], x_label="rows", form=plain
        ),
        histogram("Replies that were used", answered, x_label="share of the tasks", form=percent),
        histogram(
            "Rounds in which a client was asked", [float(own.rounds) for own in share], x_label="rounds", form=plain
        ),
        histogram(
            "Accuracy on the clients' own test rows",
            [1 - own["test_error"] for own in measured.values()],
            x_label="rows answered correctly",
            form=percent,
        ),
    ]


def _reasons(accounts: Mapping[str, Any]) -> Html | None:
    """Why replies were rejected or failed: how many, of how many clients."""
    replies: Counter[tuple[str, str]] = Counter()
    clients: Counter[tuple[str, str]] = Counter()
    for own in accounts.values():
        for fate in ("rejected", "failed"):
            for reason, number in own.get(fate, {}).items():
                replies[fate, reason] += number
                clients[fate, reason] += 1
    if not replies:
        return None
    columns = [
        TableColumn("reason", False),
        TableColumn("what became of the reply", False),
        TableColumn("replies"),
        TableColumn("clients"),
    ]
    rows = [
        [readable_reason(reason), fate, f"{number:,}", f"{clients[fate, reason]:,}"]
        for (fate, reason), number in replies.most_common(20)
    ]
    return tag("div", tag("h3", "Why replies were lost"), table(columns, rows, label="Why replies were lost"))
