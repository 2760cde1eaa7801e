"""The run directory: the only record of a run, written so that it survives a kill at any instant.

config.toml      the complete settings the run was started with
manifest.json    versions, seed, digests of the data
events.jsonl     one line per round, append-only
checkpoints/     the method's state and the federation's snapshot; the last two are retained
models/          model files named by content, and a pointer to the current snapshots
result.json      the candidates and the cost
lock             held by the process that writes
"""

from atoll.store.directory import RunDirectory
from atoll.store.models import Model

__all__ = ["Model", "RunDirectory"]
