"""What the metrics of a round hold, by the kind that a method declares and the manifest records.

`Method.metrics_kind` names the kind. All keys are optional: a round holds what was measured in it, and a method may add
keys of its own. A method from outside may declare a kind of its own, and register a figure that draws it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from typing_extensions import TypedDict  # a part of pydantic, which cannot check typing's before Python 3.12


class ModelMetrics(TypedDict, total=False):
    """One model. Errors are shares of 1, here and below; without a prefix they are on validation rows."""

    error: float
    test_error: float


class PickMetrics(TypedDict, total=False):
    """A network of a front that the method recommends."""

    key: str  # its name in the front
    error: float
    test_error: float  # of `published`, if there is one
    macs: float
    published: str  # the network that is ready for use as this pick: picked in a round before


class FrontMetrics(TypedDict, total=False):
    """Networks that no other one beats in all objectives."""

    phase: Literal["search", "final"]  # final: the training of the picks, from scratch (offline) or with what they have
    error: float  # the lowest
    hypervolume: float | None  # of the search; in the phase `final`, of its last round
    front: list[list[Any]]  # of each network its name and its objectives, by rising error
    objectives: list[str]  # what these are; without it, those of the setting `objectives`
    high: PickMetrics
    knee: PickMetrics
    high2: PickMetrics
    knee2: PickMetrics


class PolicyMetrics(TypedDict, total=False):
    """A supernet under a distribution over its operations, then the training of the network that was found."""

    phase: Literal["warmup", "search", "final"]
    accuracy: float  # on training batches, like the next
    moving_accuracy: float
    accuracy_deviation: float  # over the replies of the round
    entropy: float  # of an edge's operations, in nats
    entropy_without_signal: float  # of policies that get the same rewards for other keys: the median, and below
    entropy_without_signal_5: float  # the 5th percentile
    compensation: float  # of late gradients, as a share of their length
    skip_share: float  # of skip connections in the most likely cells
    skip_expected: float
    error: float  # on training batches before the phase `final`
    test_error: float


class PrunedCandidateMetrics(TypedDict, total=False):
    """One candidate of an iteration, named by the layer that was narrowed."""

    accuracy: float


class PruningMetrics(TypedDict, total=False):
    """Iterations of several rounds. Each prunes one network into candidates and ends with one of them."""

    phase: Literal["start", "search"]  # start: the training of the first network
    iteration: int
    round_in_iteration: int
    candidates: dict[str, PrunedCandidateMetrics]
    chosen: str  # the candidate, in the last round of an iteration, like the next three
    layer: str  # what was narrowed or left out, in words
    network: str
    resources: dict[str, float]  # of this network
    error: float
    test_error: float


class NetworkMetrics(TypedDict, total=False):
    """One of several networks that are trained side by side."""

    accuracy: float
    test_accuracy: float
    client_accuracy: float  # of the clients' own models on their own training rows
    connections: float  # weights of one upload, mean of the clients


class NetworksMetrics(TypedDict, total=False):
    """Several networks trained side by side."""

    error: float  # the lowest
    networks: dict[str, NetworkMetrics]


KINDS: dict[str, type[Any]] = {
    "model": ModelMetrics,
    "front": FrontMetrics,
    "policy": PolicyMetrics,
    "pruning": PruningMetrics,
    "networks": NetworksMetrics,
}


def measured_on(manifest: Mapping[str, Any]) -> str:
    """The rows that the errors of a run's rounds are about, in words. Where no client has validation rows, methods that
    choose nothing take the test rows."""
    words = str(manifest.get("measured_on", "validation rows"))
    clients = manifest.get("clients", {})
    validated = not clients or any(rows.get("validation") for rows in clients.values())
    return "test rows" if words == "validation rows" and not validated else words
