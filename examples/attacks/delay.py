"""A fifth of the clients replies half a second late, and a round waits for four fifths of them only."""

from compare import compare

compare(
    "a fifth of the clients replies half a second late; a round waits for 80 %",
    {"kind": "delay", "clients": 0.2, "factor": 0.5},
    quorum=0.8,
)
