"""What federated averaging of a standard network costs: the yardstick for what a search cost its clients.

Measured, if such a run is at hand; otherwise computed by the rules of the ledger for the same clients and as many
rounds: in a round each chosen client receives the weights, trains for the run's epochs, sends them back, and evaluates
the mean. Headers of messages are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atoll.core.ledger import Account
from atoll.devices import device_profile
from atoll.errors import AtollError
from atoll.report.view import RunView
from atoll.run.baselines.rivals import standard_architecture

DEVICE = "phone"  # whose profile turns MACs and bytes into joules
SINGLE = {
    "fedavg",
    "personal",
    "central",
    "retrain",
    "retrain_central",
}  # no search: nothing to compare with a standard
PASSES = 3  # a training pass counts three


@dataclass(frozen=True)
class Reference:
    """The cost of federated averaging, and where the numbers come from."""

    network: str
    account: Account
    rounds: int
    measured: bool
    source: str = ""  # the run that was measured

    @property
    def joules(self) -> float:
        return joules(self.account)


def joules(account: Account) -> float:
    """By the profile of a phone."""
    return device_profile(DEVICE).joules(account.client_macs, account.bytes_up, account.bytes_down)


def reference_of(view: RunView) -> Reference | None:
    """Federated averaging beside this run; None for a run that is no search, or whose standard network is not known."""
    if view.method in SINGLE or view.manifest.get("centralised") or view.rounds == 0:
        return None
    for name, rival in view.rivals.items():
        if rival.method == "fedavg" or name == "standard":
            network = "the standard network" if rival.method != "fedavg" else model_word(rival.settings)
            return Reference(network, total(rival), rival.rounds, True, rival.path.name)
    found = standard_network(view)
    if found is None or not client_rows(view):
        return None
    try:
        return computed_reference(view, found)
    except AtollError:
        return None  # the standard network does not suit this data: images that are too small, say


def total(view: RunView) -> Account:
    """What a run cost its clients, with the measurements at its end if it has one."""
    if view.result is None:
        return view.digest.total
    own = view.result["ledger"]
    known = {name: own[name] for name in Account.__dataclass_fields__}
    return Account(**{**known, "replies": dict(own["replies"])})


def model_word(settings: Mapping[str, Any]) -> str:
    """The name of a fixed network in words."""
    words = {
        "resnet18": "a ResNet18",
        "mlp": "an MLP",
        "cnn": "a CNN",
        "mobilenet": "a MobileNet",
        "convnet": "a ConvNet",
    }
    name = str(settings.get("model", "network"))
    word = words.get(name, name)
    sizes = settings.get("widths") if "widths" in settings else settings.get("hidden")
    return f"{word} of {', '.join(map(str, sizes))}" if isinstance(sizes, (list, tuple)) and sizes else word


def standard_network(view: RunView) -> dict[str, Any] | None:
    """The hand-made network of a search's kind, as `atoll baselines` takes it; for a search by pruning the network that
    it starts with."""
    entries = view.candidates
    if not entries:
        return None
    first = entries[0]["architecture"]
    data = {"input": first.get("input"), "classes": first.get("classes")}
    if data["input"] is None:
        return None
    if view.kind == "pruning":
        whole: dict[str, Any] = max(entries, key=lambda entry: entry["objectives"]["macs"])["architecture"]
        return whole
    return standard_architecture(view.method, view.settings, data["input"], data["classes"])


def computed_reference(view: RunView, network: dict[str, Any]) -> Reference:
    """What federated averaging of this network would cost the clients of a run, for as many rounds."""
    from atoll import spaces

    cost = spaces.cost(network)
    rows = client_rows(view)
    fraction = float(view.settings.get("fraction", 1.0))
    epochs = int(view.settings.get("epochs") or 1)
    chosen = max(1, round(fraction * len(rows)))
    share = chosen / len(rows)
    macs = (
        sum(PASSES * cost.macs * own["train"] * epochs + cost.macs * own["validation"] for own in rows.values()) * share
    )
    sent = chosen * 4 * cost.params
    rounds = view.rounds
    account = Account(
        chosen * rounds, bytes_down=sent * rounds, bytes_up=sent * rounds, client_macs=round(macs * rounds)
    )
    account.replies["used"] = account.tasks
    account.simulated_seconds = rounds * _round_seconds(view, rows, cost, epochs)
    other = "the start network" if view.kind == "pruning" else "the standard network"
    return Reference(model_word(network) if network["space"] == "fixed" else other, account, rounds, False)


def client_rows(view: RunView) -> dict[str, dict[str, int]]:
    """The rows of each client's parts, as it reported them."""
    known = view.manifest.get("clients") or {}
    return {
        name: {
            "train": int(own.get("train", 0)),
            "validation": int(own.get("validation", 0)),
            "test": int(own.get("test", 0)),
        }
        for name, own in known.items()
    }


def _round_seconds(view: RunView, rows: Mapping[str, Mapping[str, int]], cost: Any, epochs: int) -> float:
    """The virtual seconds of a round of all clients: until the slowest has trained, and then until it has evaluated."""
    plain = view.config.get("simulation")
    if not isinstance(plain, dict):
        return 0.0
    from atoll.simulation.links import links_for
    from atoll.simulation.settings import SimulationSettings

    links = links_for(SimulationSettings.model_validate(plain), view.seed, list(rows))
    size = 4 * cost.params
    trained = max(
        links.of[name].journey(0.0, size, PASSES * cost.macs * own["train"] * epochs, size).arrived
        for name, own in rows.items()
    )
    evaluated = max(
        links.of[name].journey(trained, size, cost.macs * own["validation"], 0).arrived for name, own in rows.items()
    )
    return evaluated
