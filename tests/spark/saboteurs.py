"""Stages that inject real faults, once each, from inside a running task.

They follow ``enrich`` in the same task, in a separate Python worker, so when they get the first
rows, the joining worker is in the middle of its work.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

Stage = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def once(flag: Path, deed: Callable[[], None], batch: int | None = None) -> Stage:
    """Pass rows on; call ``deed`` at the first rows (of this micro-batch), once in total.

    ``<flag>.retried`` appears when the batch is attempted again: the fault had an effect.
    """
    name = str(flag)

    def stage(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        now = context.getLocalProperty("streaming.sql.batchId")
        for rows in batches:
            if rows.num_rows and (batch is None or int(now or -1) == batch):
                try:
                    os.close(os.open(name, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    if context.attemptNumber():
                        os.close(os.open(f"{name}.retried", os.O_CREAT))
                else:
                    deed()
            yield rows

    return stage


def kill_joining_workers() -> None:
    """SIGKILL to every worker of this executor that holds a run."""
    root = Path(os.environ["SPARK_LOCAL_DIRS"].split(",")[0]) / "semistream"
    pids = {int(path.stem) for path in root.glob("*/*.worker")} - {os.getpid()}
    assert pids, "no worker is joining"
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    time.sleep(1)  # then this task continues, and its input is gone


def kill_executor() -> None:
    """SIGKILL to the JVM: the parent of the daemon that forked this worker."""
    daemon = os.getppid()
    with open(f"/proc/{daemon}/stat") as stat:
        parent = int(stat.read().rsplit(")", 1)[1].split()[1])
    os.kill(parent, signal.SIGKILL)
    time.sleep(60)


def upsert_then_fail(path: str, rows: pa.Table) -> Callable[[], None]:
    """The master table changes, and the attempt that read the older version fails."""

    def deed() -> None:
        import semistream as ss

        ss.MasterTable.open(path).upsert(rows)
        raise RuntimeError("this attempt fails, its retry must see what it saw")

    return deed


def by_value() -> Any:
    """Workers cannot import the tests: send this module's functions along."""
    import sys

    from pyspark import cloudpickle

    return cloudpickle.register_pickle_by_value(sys.modules[__name__])
