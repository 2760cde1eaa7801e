"""FedAvg keeps the contract of all methods."""

from __future__ import annotations

from atoll.testing import MethodContract


class TestFedAvg(MethodContract):
    method = "fedavg"


class TestCentral(MethodContract):
    method = "central"
