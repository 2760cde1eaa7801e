"""A fifth of the clients counts every row as answered correctly."""

from compare import compare

compare("a fifth of the clients counts every row as answered correctly", {"kind": "lie", "clients": 0.2})
