"""A fifth of the clients trains on wrong labels: 9 for 0, 8 for 1, and so on."""

from compare import compare

compare("a fifth of the clients trains on wrong labels", {"kind": "label_flip", "clients": 0.2})
