"""A fifth of the clients sends its update 20 times as long."""

from compare import compare

compare("a fifth of the clients sends its update 20 times as long", {"kind": "scale", "clients": 0.2, "factor": 20.0})
