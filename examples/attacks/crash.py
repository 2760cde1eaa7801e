"""The processes of a fifth of the clients die in the middle of one in ten tasks."""

from compare import compare

compare(
    "the processes of a fifth of the clients die in one in ten tasks",
    {"kind": "crash", "clients": 0.2, "probability": 0.1},
    workers=2,
)
