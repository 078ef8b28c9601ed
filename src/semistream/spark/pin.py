"""Which version of a master table a task sees, so that a batch that is run again sees the same.

A micro-batch: the version that is pinned to (query, batch) in the table's folder; the first task
of the batch pins the newest. This also holds inside ``foreachBatch``, where Spark sets the same
properties. Anything else: the version that was the newest when ``enrich`` was called.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from pyspark import TaskContext

from semistream.errors import MasterTableError
from semistream.master.pins import pin
from semistream.master.store import LocalStore

QUERY = "sql.streaming.queryId"
BATCH = "streaming.sql.batchId"


@dataclass(frozen=True)
class MicroBatch:
    """What makes a batch the same batch, however often it is run."""

    query: str
    batch: int


def micro_batch() -> MicroBatch | None:
    """The micro-batch that the running task belongs to, if it belongs to one."""
    context = TaskContext.get()
    if context is None:
        return None
    query, batch = context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
    if query is None or batch is None:
        return None
    return MicroBatch(query, int(batch))


def pinned_version(path: str | os.PathLike[str], batch: MicroBatch) -> int:
    """The version of the table at ``path`` that this batch sees, now and in every replay."""
    try:
        return pin(LocalStore(path), batch.query, batch.batch)
    except OSError as error:
        raise MasterTableError(
            f"the master table's version cannot be pinned for batch {batch.batch} in {path}: "
            f"{error.strerror or error}; the executors need to write to its folder"
        ) from error
