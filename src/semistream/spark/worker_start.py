"""Starts a Python worker of a local session beside other work.

The first micro-batch of a query waits for a Python worker, which imports pyarrow, pandas, Numba and
semistream: two seconds in which the other cores have nothing to do. A small job makes Spark start
the worker, and run Python for the first time, while the query is being planned. It is one worker:
several at once would take the processor from the planning.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

_MODULES = (
    "semistream.spark.sink",
    "semistream.spark.worker",
    "semistream.kernels.counting_cache",
    "semistream.kernels.sweep",
    "pyarrow.parquet",
)


def start_worker(session: Any) -> threading.Thread:
    """Start a worker of a local session, in a thread; errors are ignored."""
    thread = threading.Thread(target=_run, args=(session,), name="semistream-worker", daemon=True)
    thread.start()
    return thread


def _run(session: Any) -> None:
    with contextlib.suppress(Exception):  # the session was stopped; whoever needs a worker waits
        session.range(0, 1, numPartitions=1).mapInArrow(import_modules, "id long").collect()


def import_modules(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The task: imports what the tasks of a query use."""
    from importlib import import_module

    for name in _MODULES:
        import_module(name)
    yield from batches
