"""Does memory grow with the rounds? A long search on a real federation of three sites, memory by role.

    python benchmarks/leaks.py [--nevofed 12] [--realtime 12] [--early 5]

Prints rows for the table of docs/performance.md: the memory of every role's processes together (PSS: what forks share
is divided between them) after the round `early` and after the last one, and the largest that was seen. Full:
--nevofed 200 --realtime 50 --early 10.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from pathlib import Path

from overhead import CASES, ROLES, SITES, atoll, by_role, federation, memory, search


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--nevofed", type=int, default=12)
    options.add_argument("--realtime", type=int, default=12)
    options.add_argument("--early", type=int, default=5)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        print(
            f"| search | processes | MB after an early round | after the last round | most |\n{'|---' * 5}|", flush=True
        )
        for name, rounds in (("nevofed", given.nevofed), ("realtime", given.realtime)):
            if rounds:
                case, out = CASES[name], Path(folder, name)
                atoll("datasets", "export", case.data, "--names", ",".join(SITES), "--out", f"data/{case.data}")
                with federation(case.data, name) as place, Memory(out / "events.jsonl") as seen:
                    search(case, out, rounds, "--federation", place)
                seen.report(name, given.early)


class Memory:
    """Bytes of every role after each round."""

    def __init__(self, events: Path) -> None:
        self._events, self._rounds = events, dict[int, dict[str, int]]()

    def __enter__(self) -> Memory:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.5):
            done = len(self._events.read_bytes().splitlines()) if self._events.exists() else 0
            if done and done not in self._rounds:
                self._rounds[done] = {role: sum(map(memory, pids)) for role, pids in by_role().items()}

    def report(self, name: str, early: int) -> None:
        """Of the rounds after which all processes were there: the last one may end the run."""
        whole = [number for number, found in sorted(self._rounds.items()) if len(found) == len(ROLES)]
        first, last = next((number for number in whole if number >= early), whole[0]), whole[-1]
        for role in ROLES:
            values = [self._rounds[number][role] / 1e6 for number in (first, last)]
            most = max(found.get(role, 0) for found in self._rounds.values()) / 1e6
            cells = [f"`{name}`, {last} rounds", role, f"{values[0]:.0f} ({first})", f"{values[1]:.0f}", f"{most:.0f}"]
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
