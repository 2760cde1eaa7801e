"""Python reads this in every process that has this folder on its path: there `fedavg` stands for the test's method."""

from atoll.methods import METHODS

METHODS["fedavg"] = "contract_method:ContractMethod"
