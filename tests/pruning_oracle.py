"""torch-pruning, with which couplings and cuts are compared."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import torch_pruning
from torch import Tensor, nn

from atoll.spaces import layers


def dependency_graph(module: nn.Module, batch: Tensor) -> Any:
    """The library's graph of a network. It cannot follow a permuted image, so it is given plain slices."""
    with patch.object(layers, "pixels", lambda x, rows, columns: x[:, :, rows, columns]):
        return torch_pruning.DependencyGraph().build_dependency(module, (batch,), verbose=False)
