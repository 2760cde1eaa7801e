"""A fifth of the clients sends damaged frames."""

from compare import compare

compare("a fifth of the clients sends damaged frames", {"kind": "corrupt", "clients": 0.2})
