"""The processes of a fifth of the clients die in the middle of every task."""

from compare import compare

compare("the processes of a fifth of the clients die in every task", {"kind": "crash", "clients": 0.2}, workers=2)
