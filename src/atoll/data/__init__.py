"""Data sets, partitions and a client's own splits."""

from atoll.data.catalog import catalogue
from atoll.data.federated import ClientData, Federated
from atoll.data.loading import load
from atoll.data.settings import DataSettings

__all__ = ["ClientData", "DataSettings", "Federated", "catalogue", "load"]
