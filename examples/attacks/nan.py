"""One client of twenty sends NaN."""

from compare import compare

compare("one client of twenty sends NaN", {"kind": "nan", "clients": 0.05})
