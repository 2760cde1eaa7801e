"""The processes of a fifth of the clients die in the middle of one in fifty tasks."""

from compare import compare

compare(
    "the processes of a fifth of the clients die in one in fifty tasks",
    {"kind": "crash", "clients": 0.2, "probability": 0.02},
    workers=2,
)
