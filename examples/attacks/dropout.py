"""Each client is lost in 30 % of its tasks."""

from compare import compare

compare("each client is lost in 30 % of its tasks", {"kind": "dropout", "clients": 1.0, "probability": 0.3})
