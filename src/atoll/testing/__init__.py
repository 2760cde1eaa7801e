"""For authors of methods and engines: a scripted federation, and the contracts as test suites.

    class TestMyMethod(MethodContract):
        method = "mymethod"

    class TestMyEngine(EngineContract):
        def federation(self, data, seed, deadline=None): ...

Running them needs pytest, importing them does not.
"""

from atoll.testing.data import made_images, made_table
from atoll.testing.engine_contract import EngineContract, JournalContract
from atoll.testing.method_contract import MethodContract
from atoll.testing.scripted import FaultyTransport, ScriptedFederation, StrictTransport

__all__ = [
    "EngineContract",
    "FaultyTransport",
    "JournalContract",
    "MethodContract",
    "ScriptedFederation",
    "StrictTransport",
    "made_images",
    "made_table",
]
