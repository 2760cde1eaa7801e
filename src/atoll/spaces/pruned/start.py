"""The start network of a pruning search: a built-in model or a user's module."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from atoll.core.messages import Schema, Tensors
from atoll.errors import ConfigError
from atoll.spaces.fixed import USUAL_WIDTHS, architecture_for
from atoll.spaces.norm import Norm
from atoll.spaces.pruned.space import describe, from_fixed

HALVINGS_OF_CONVNET = 3
THIN = (16, 16, 32, 32, 64, 64)

Maker = Callable[[tuple[int, ...], int], nn.Module]


def fitted_start(
    model: str,
    schema: Schema,
    hidden: Sequence[int] | None,
    widths: Sequence[int] | None,
    width: float | None,
    norm: Norm = "batch",
) -> dict[str, Any]:
    """The settings `model`, `hidden`, `widths` and `width`, completed for this data.

    `auto` is a thin ConvNet, the pruning paper's network, for images of at least 8x8, otherwise an MLP.
    """
    if is_user_model(model):
        for name, value in (("hidden", hidden), ("widths", widths), ("width", width)):
            if value is not None:
                raise ConfigError(
                    f"{name} = {value}: the module of {model!r} defines its own widths; remove this setting",
                    code="inapplicable-setting",
                )
        if norm != "batch":
            raise ConfigError(
                f"norm = {norm!r}: the module of {model!r} defines its own norm; remove this setting",
                code="inapplicable-setting",
            )
        start_architecture(model, schema)
        return {}
    if model == "auto" and hidden is None and width is None:
        image = schema.kind == "image" and min(schema.shape[1:]) >= 2**HALVINGS_OF_CONVNET
        model, widths = ("convnet", widths or THIN) if image else ("mlp", widths)
    if width is not None:
        if widths is not None or model not in USUAL_WIDTHS:
            known = ", ".join(USUAL_WIDTHS)
            raise ConfigError(
                f"width = {width:g}: a factor for the default widths of {known}; choose one of them and remove widths",
                code="inapplicable-setting",
            )
        widths = [max(1, round(size * width)) for size in USUAL_WIDTHS[model]]
    arch = architecture_for(model, schema, hidden, widths, norm)
    return {"model": arch["model"], "hidden": arch.get("hidden"), "widths": arch.get("widths"), "width": None}


def start_architecture(
    model: str,
    schema: Schema,
    hidden: Sequence[int] | None = None,
    widths: Sequence[int] | None = None,
    width: float | None = None,
    norm: Norm = "batch",
) -> dict[str, Any]:
    """The start network as a description of space `widths`."""
    if is_user_model(model):
        return describe(user_module(model, schema), schema.shape, schema.outputs)
    decided = fitted_start(model, schema, hidden, widths, width, norm)
    return from_fixed(architecture_for(decided["model"], schema, decided["hidden"], decided["widths"], norm))


def is_user_model(model: str) -> bool:
    return ":" in model


def user_weights(model: str, schema: Schema) -> Tensors:
    """The parameters of the module that the user's function returns, which usually loads a trained network."""
    if not is_user_model(model):
        raise ConfigError(
            f"weights = 'own': model {model!r} is not a user's module; give a .safetensors file instead",
            code="inapplicable-setting",
        )
    module = user_module(model, schema)
    return Tensors({name: p.detach().cpu().float().numpy().copy() for name, p in module.named_parameters()})


def user_module(reference: str, schema: Schema) -> nn.Module:
    """The module that the user's function returns for (shape of a row, number of classes). Runs on the server only."""
    maker = _function(reference)
    try:
        with torch.random.fork_rng(devices=[]):  # constructors draw initial weights from the global state
            module = maker(tuple(schema.shape), schema.outputs)
    except Exception as problem:
        message = " ".join(str(problem).split())
        raise ConfigError(
            f"model = {reference!r}: {type(problem).__name__}: {message}; the function is called with the shape of a "
            f"row, {tuple(schema.shape)}, and the number of classes, {schema.outputs}",
            code="model-function-failed",
        ) from None
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model = {reference!r}: it returned a {type(module).__name__}; return a torch.nn.Module",
            code="not-a-module",
        )
    return module


def _function(reference: str) -> Maker:
    place, _, name = reference.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
        found: Maker = getattr(module, name)
    except Exception as problem:  # a user's file may raise anything on import
        message = " ".join(str(problem).split())
        raise ConfigError(
            f"model = {reference!r}: {type(problem).__name__}: {message}; give a function as package.module:function "
            "or file.py:function",
            code="not-importable",
        ) from None
    return found
