"""Settings of how exchanges wait that cannot work, or that do nothing, before a run begins."""

from __future__ import annotations

import math
from collections.abc import Sequence

from atoll.config import Experiment
from atoll.core.messages import Late
from atoll.errors import ConfigError
from atoll.federation.exchange import ExchangeRules

RARE = 0.001  # the share of exchanges in which dropouts may leave enough clients: with less no run gets anywhere


def refuse_late(experiment: Experiment, able: Sequence[Late]) -> None:
    """Settings for late replies that the method cannot follow."""
    asked, network = experiment.engine.late, experiment.simulation
    if asked is not None and asked not in able:
        ways = " or ".join(map(repr, able))
        raise ConfigError(
            f"engine.late = {asked!r}: method {experiment.method} can only {ways} late replies; set one of these",
            code="late-not-used",
        )
    if network is not None and network.staleness is not None and able == ("drop",):
        raise ConfigError(
            f"simulation.staleness: method {experiment.method} drops late replies, only fedrl uses them; set "
            "simulation.dropout or engine.deadline",
            code="staleness-not-used",
        )
    shares = None if network is None else network.shares()
    if shares is not None and shares[0] == 0 and (asked or able[0]) == "drop":
        raise ConfigError(
            "simulation.staleness: its first share is 0, so every reply is late, and engine.late = 'drop' uses none; "
            "give replies that are 0 rounds late a share",
            code="no-reply-counts",
        )
    if network is not None and network.dropout == 1:
        raise ConfigError(
            f"simulation.dropout = 1: no task would be answered, and engine.quorum = {experiment.engine.quorum:g} "
            "waits for replies; give less than 1",
            code="no-reply-counts",
        )


def refuse_unreachable(experiment: Experiment, participating: int) -> None:
    """A dropout that hardly ever leaves as many clients as an exchange with this many waits for, or needs."""
    network, rules = experiment.simulation, experiment.engine.rules(("drop",))
    dropout = 0.0 if network is None else network.dropout
    for setting, value, clients, verb in (
        ("quorum", rules.quorum, rules.needed(participating) if rules.quorum < 1 else 0, "waits for"),
        ("minimum", rules.minimum, rules.least(participating), "needs"),
    ):
        share = _at_least(clients, participating, 1 - dropout)
        if share < RARE:
            raise ConfigError(
                f"engine.{setting} = {value:g}: an exchange {verb} {clients} of {participating} clients, and with "
                f"simulation.dropout = {dropout:g} that many answer in {100 * share:.1g} % of all exchanges; lower one "
                "of them",
                code="impossible-quorum",
            )


def _at_least(number: int, of: int, chance: float) -> float:
    """The probability that at least this many of them answer, each with this chance."""
    return math.fsum(math.comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(number, of + 1))


def without_effect(experiment: Experiment, rules: ExchangeRules) -> list[str]:
    """Settings that do nothing beside the others, each in a line for the user."""
    found, late, network = [], experiment.engine.late, experiment.simulation
    if rules.fair and rules.quorum == 1:
        found.append(
            f"engine.fair = {rules.fair} has no effect: with engine.quorum = 1 every exchange waits for all clients; "
            "set a lower quorum"
        )
    mixed = network is not None and network.staleness is not None
    if late in ("use", "compensate") and rules.quorum == 1 and rules.deadline is None and not mixed:
        found.append(
            f"engine.late = {late!r} has no effect: no reply is late without engine.quorum, engine.deadline or "
            "simulation.staleness; set one of them"
        )
    return found
