"""Weights that a run has left for a network: what `atoll retrain --from found` goes on from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from atoll.errors import ConfigError
from atoll.messages import Tensors
from atoll.spaces import canonical
from atoll.store.models import load_model


def found_weights(path: str | Path, architecture: dict[str, Any]) -> Tensors:
    """The weights in a run's model file for this network.

    The file holds this very network, or one with the same layers that are wider: then the filters of smallest L2 norm
    are left out, layer by layer, which is how a width multiplier goes on from the weights of the start network.
    """
    from atoll.spaces.multipliers import pruned_to

    try:
        model = load_model(Path(path))
    except OSError as problem:
        raise ConfigError(
            f"start = {str(path)!r}: cannot be read ({problem.strerror or problem})", code="file-unreadable"
        ) from None
    if canonical(model.architecture) == canonical(architecture):
        return model.weights
    weights = pruned_to(model.architecture, model.weights, architecture)
    if weights is None:
        raise ConfigError(
            f"start = {str(path)!r}: it holds another network than the one that is to go on from it; train that one "
            "from scratch, or name the file of the same network",
            code="weights-of-other-network",
        )
    return weights
