"""Ready to use at every round: a process that serves High and Knee while the search in another process goes on."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import torch

import atoll

READS = 50
ANSWERS = 6  # two of a round, so at least three rounds were seen
PROGRAM = """
import sys, atoll
from atoll.testing import made_table
atoll.search("realtime", made_table(clients=3), out=sys.argv[1], workers=0, rounds=int(sys.argv[2]), population=2,
             widths=[6, 4], batch=8, test_every=0)
"""


def test_a_reader_never_sees_a_broken_model(tmp_path: Path) -> None:
    """A file that is missing, cut or mixed up raises when it is read."""
    folder = tmp_path / "run"
    writer = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder), "5000"], stderr=subprocess.PIPE)
    row, answers, reads = torch.linspace(-1, 1, 6).reshape(1, 6), set(), 0
    try:
        _wait_for(folder / "models" / "current.json", writer)
        while reads < READS or (len(answers) < ANSWERS and writer.poll() is None):
            run = atoll.load(folder)
            for pick in ("high", "knee"):
                output = run.model(pick)(row)
                assert output.shape == (1, 3) and torch.isfinite(output).all()
                answers.add(tuple(output.reshape(-1).tolist()))
            reads += 1
        assert writer.poll() is None, "the search ended before the reads: give it more rounds"
    finally:
        writer.kill()
        _, complaints = writer.communicate()
    assert len(answers) >= ANSWERS, complaints.decode()


def _wait_for(path: Path, writer: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert writer.poll() is None and time.monotonic() < deadline, "the search has offered nothing"
        time.sleep(0.02)
