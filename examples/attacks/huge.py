"""One client of twenty sends weights of 3e38."""

from compare import compare

compare("one client of twenty sends weights of 3e38", {"kind": "huge", "clients": 0.05})
