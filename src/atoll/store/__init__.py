"""The run directory: the only truth about a run, written so that it survives a kill at any instant.

config.toml      the complete settings the run was started with
manifest.json    versions, seed, digests of the data
events.jsonl     one line a round, append-only
checkpoints/     the method's state and the federation's snapshot, two kept
models/          weights named by content, and pointer files
result.json      what came out
lock             who is writing
"""

from atoll.store.directory import RunDirectory
from atoll.store.models import Model

__all__ = ["Model", "RunDirectory"]
