"""A fifth of the clients sends its update in the opposite direction, five times as long."""

from compare import compare

compare("a fifth of the clients sends 5 times the opposite update", {"kind": "flip", "clients": 0.2, "factor": 5.0})
