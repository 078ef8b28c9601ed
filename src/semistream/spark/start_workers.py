"""Starts Spark's Python workers while the driver plans its first query.

A worker imports Arrow, Numba, pandas and this package before it joins its first row: seconds, on a
machine that also starts a JVM. Spark starts workers when the first task needs them, one for each
task that runs at once, and keeps them. A small job, in the background, makes it do so early.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.utils import is_remote


def start_workers(session: Any) -> threading.Thread | None:
    """Start the workers of a local session; None: there is no driver whose tasks they would run.
    A worker that does not start is started by the first task that needs it."""
    if is_remote() or not session.sparkContext.master.startswith("local["):
        return None
    count = session.sparkContext.defaultParallelism
    thread = threading.Thread(
        target=_run, args=(session, count), name="semistream-start-workers", daemon=True
    )
    thread.start()
    return thread


def _run(session: Any, count: int) -> None:
    with contextlib.suppress(Exception):  # the session may have been stopped
        session.range(0, count, 1, count).mapInArrow(import_all, "id long").collect()


def import_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Import what a task imports."""
    from semistream.cost import predict  # noqa: F401
    from semistream.joins.sweep import sweepjoin  # noqa: F401
    from semistream.spark import sink, waiting  # noqa: F401
    from semistream.tuning import calibration_file, tuner  # noqa: F401

    for batch in batches:
        yield batch.slice(0, 0)
