"""Workers that are started before the first query."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pyarrow as pa

from semistream.spark.start_workers import import_all, start_workers


def _workers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    rows = sum(batch.num_rows for batch in batches)
    is_ready = "semistream.joins.sweep.sweepjoin" in sys.modules
    yield pa.RecordBatch.from_pydict({"pid": [os.getpid()], "rows": [rows], "ready": [is_ready]})


def test_tasks_find_workers_that_have_imported_everything(spark: Any) -> None:
    thread = start_workers(spark)
    assert thread is not None
    thread.join(60)
    assert not thread.is_alive()
    slots = spark.sparkContext.defaultParallelism
    rows = spark.range(0, slots, 1, slots)
    found = rows.mapInArrow(_workers, "pid long, rows long, ready boolean")
    assert all(row.ready for row in found.collect())


def test_no_row_comes_out(spark: Any) -> None:
    assert spark.range(5).mapInArrow(import_all, "id long").count() == 0


def test_a_session_that_was_stopped_is_of_no_interest() -> None:
    stopped = Mock()
    stopped.sparkContext.master = "local[2]"
    stopped.range.side_effect = RuntimeError("stopped")
    thread = start_workers(stopped)
    assert thread is not None
    thread.join(10)
    assert stopped.range.called


def test_a_cluster_starts_its_own() -> None:
    cluster = Mock()
    cluster.sparkContext.master = "spark://host:7077"
    assert start_workers(cluster) is None
