"""Networks of a search over choice keys that are ready for use while it goes on, one round after they were picked.

Their fixed batch norm statistics are those that the clients kept when they measured the keys (`clients/kept.py`), so a
network is published with the weights that it had then, once these have come; until then the one before it stays.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from atoll.clients import FederatedModel, Fetch, Wanted, count_tests
from atoll.methods.base import Federation, Tensors
from atoll.spaces.choice import space as choice

# Key (as one word), round in which it was picked, objectives, weights, and what is None until it is known: statistics,
# test error.
Snapshot = dict[str, Any]


def offered(
    published: Mapping[str, Snapshot],
    picks: Mapping[str, tuple[str, list[float]]],
    weights: Callable[[str], Tensors],
    round_number: int,
    lasts: int,
) -> dict[str, Snapshot]:
    """The picks of this round, each a key and its objectives, as they should be published. A network that was published
    less than `lasts` rounds ago stays as it was then."""
    found = {}
    for pick, (key, objectives) in picks.items():
        before = published.get(pick)
        if before is not None and before["key"] == key and round_number - before["round"] < lasts:
            found[pick] = before
        else:
            new = {"key": key, "round": round_number, "objectives": objectives, "weights": weights(key)}
            found[pick] = {**new, "statistics": None, "test_error": None}
    return found


def fetching(
    offers: Mapping[str, Snapshot],
    federation: Federation,
    architecture: Mapping[str, Any],
    measurement: tuple[str, Collection[str]],
    statistics: bool,
    tested: bool,
) -> Fetch:
    """Asks for what is missing of these networks: `statistics` of the `measurement` with this name, which these clients
    have kept, and counts of test rows, if they are to be `tested`."""
    wanted = {}
    for one in offers.values():
        arch = choice.sub_model(architecture, list(map(int, one["key"])))
        new, untested = statistics and one["statistics"] is None, tested and one["test_error"] is None
        wanted[_label(one)] = Wanted(_label(one), arch, one["weights"], new, untested)
    return Fetch(federation, architecture, *measurement, list(wanted.values()))


def completed(
    published: Mapping[str, Snapshot], offers: Mapping[str, Snapshot], fetch: Fetch, federation: Federation
) -> dict[str, Snapshot]:
    """The networks of which everything is known, and what was published before instead of the others. Who holds test
    rows and was not asked is asked now."""
    known = dict(published)
    for pick, one in offers.items():
        found = fetch.statistics.get(_label(one)) if one["statistics"] is None else one["statistics"]
        if found is not None:
            known[pick] = {**one, "statistics": found}
    untested = {_label(one) for one in known.values()} & fetch.counts.keys()
    models = [
        FederatedModel(one.name, dict(one.architecture), one.weights) for one in fetch.wanted if one.name in untested
    ]
    counts = count_tests(federation, models, fetch.counts) if models else {}
    errors = {name: own.error() for name, own in counts.items() if own.rows}
    return {pick: {**one, "test_error": errors.get(_label(one), one["test_error"])} for pick, one in known.items()}


def _label(snapshot: Snapshot) -> str:
    """High and Knee may be the same network; one that was published before has older weights than a new one."""
    return f"{snapshot['key']}@{snapshot['round']}"
