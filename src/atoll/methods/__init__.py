"""The methods: one paper, one file. A table, not a registry: nothing happens at import."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from atoll.errors import ConfigError, nearest

if TYPE_CHECKING:
    from atoll.methods.base import Method

METHODS = {
    "realtime": "atoll.methods.realtime:Realtime",
    "moefl": "atoll.methods.moefl:Moefl",
    "retrain": "atoll.methods.retrain:Retrain",
    "decnas": "atoll.methods.decnas.search:Decnas",
    "retrain_central": "atoll.methods.retrain_central:RetrainCentral",
    "nevofed": "atoll.methods.nevofed:NEvoFed",
    "fedrl": "atoll.methods.fedrl:FedRL",
    "fednas": "atoll.methods.fednas:FedNAS",
    "offline": "atoll.methods.offline:Offline",
    "fedavg": "atoll.methods.fedavg:FedAvg",
    "central": "atoll.methods.central:Central",
    "netadapt": "atoll.methods.netadapt:NetAdapt",
}


def method_names() -> list[str]:
    return list(METHODS)


def find_method(name: str) -> type[Method[Any]]:
    """The class of a method, imported when asked for."""
    if name not in METHODS:
        raise ConfigError(f"method = {name!r}: unknown; {nearest(name, METHODS)}", code="unknown-method")
    module, _, attribute = METHODS[name].partition(":")
    found: type[Method[Any]] = getattr(importlib.import_module(module), attribute)
    return found
