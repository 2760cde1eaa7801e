"""Fixed networks fitted to a federation's data: from a name in the settings to a complete architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atoll.errors import ConfigError
from atoll.messages import Schema
from atoll.spaces import skeleton
from atoll.spaces.fixed import CONVNET, MOBILENET, MODELS, RESNET18

SMALLEST_FOR_CONVNET = 16  # below that a perceptron does as well and takes a tenth of the time
USUAL_HIDDEN = {"mlp": (200, 200), "cnn": (128,)}
USUAL_WIDTHS = {"resnet18": RESNET18, "mobilenet": MOBILENET, "convnet": CONVNET}


def architecture_for(
    model: str,
    schema: Schema,
    hidden: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
) -> dict[str, Any]:
    """The complete architecture of this model for this data; `auto` takes a small one that suits it."""
    if model == "auto":
        model, hidden, widths = _automatic(schema, hidden, widths)
    arch: dict[str, Any] = {
        "space": "fixed",
        "model": model,
        "input": list(schema.shape),
        "classes": schema.outputs,
    }
    if model in MODELS:  # an unknown one is named below
        for key, value, usual in (("hidden", hidden, USUAL_HIDDEN), ("widths", widths, USUAL_WIDTHS)):
            if value is not None and model not in usual:
                raise ConfigError(
                    f"{key} = {list(value)}: model {model!r} has no such setting; leave it out",
                    code="inapplicable-setting",
                )
            if model in usual:
                arch[key] = list(value if value is not None else usual[model])
    skeleton(arch)  # what does not fit is said here, before a run starts
    return arch


def _automatic(
    schema: Schema,
    hidden: Sequence[int] | None,
    widths: Sequence[int] | None,
) -> tuple[str, Sequence[int] | None, Sequence[int] | None]:
    tiny = schema.kind == "table" or min(schema.shape[1:]) < SMALLEST_FOR_CONVNET
    if hidden is not None or (tiny and widths is None):
        return "mlp", hidden or (64, 32), widths
    return "convnet", hidden, widths or (16, 16, 32, 32, 64, 64)
