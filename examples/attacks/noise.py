"""A fifth of the clients adds noise of 10 times its update."""

from compare import compare

compare("a fifth of the clients adds noise of 10 times its update", {"kind": "noise", "clients": 0.2, "factor": 10.0})
