"""Exactly once from ``foreachBatch``, for streams that are enriched by Spark's own plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from semistream.errors import ConfigError
from semistream.sinks import Batch, Sink, Staged
from semistream.sinks.postgresql import PostgresWarehouse
from semistream.spark.errors import honest
from semistream.spark.pin import QUERY

_MESSAGE = "partition int, rows long, nbytes long, place string, schema binary"
Part = Callable[[DataFrame], DataFrame]


class ForeachBatch:
    """A function for ``foreachBatch`` that sends parts of each micro-batch to warehouses.

    Each warehouse takes its part once, however often Spark runs the batch; a batch that died
    between two of them is completed when it is run again.
    """

    def __init__(self, *routes: tuple[Sink, Part]) -> None:
        self._routes = routes

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        query = df.sparkSession.sparkContext.getLocalProperty(QUERY)
        if query is None:
            raise ConfigError("this is a function for writeStream.foreachBatch")
        batch = Batch(query, batch_id)
        several = len(self._routes) > 1
        if several:
            df = df.persist()
        try:
            for sink, part in self._routes:
                sink.commit(self._staged(part(df), sink, batch), batch)
        finally:
            if several:
                df.unpersist()

    @staticmethod
    def _staged(df: DataFrame, sink: Sink, batch: Batch) -> list[Staged]:
        with honest():
            rows = df.mapInArrow(_Stage(sink, batch), _MESSAGE).collect()
        return [
            Staged(batch, row.partition, row.rows, row.nbytes, row.place, bytes(row.schema))
            for row in rows
        ]


class PostgresSink(ForeachBatch):
    """Writes each micro-batch to a table of PostgreSQL, once.

    ``enriched.writeStream.foreachBatch(ss.PostgresSink(url, "facts")).start()``. The tasks copy
    their rows in parallel; one transaction then makes them visible and enters (query, batch)
    into a ledger, so that a batch which Spark runs again adds nothing.

    Parameters
    ----------
    url
        ``postgresql://user:password@host/database``.
    table, schema
        Where the rows go; any name is quoted. The table is made if it is not there.
    patience
        Seconds to wait for a server that is away.
    """

    def __init__(
        self, url: str, table: str, *, schema: str | None = None, patience: float = 30.0
    ) -> None:
        super().__init__((PostgresWarehouse(url, table, schema, patience), lambda df: df))


class _Stage:
    """What a task does."""

    def __init__(self, sink: Sink, batch: Batch) -> None:
        self._sink = sink
        self._batch = batch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        staged = self._sink.stage(batches, None, self._batch, context.partitionId())
        yield pa.RecordBatch.from_arrays(
            [
                pa.array([staged.partition], pa.int32()),
                pa.array([staged.rows], pa.int64()),
                pa.array([staged.nbytes], pa.int64()),
                pa.array([staged.place]),
                pa.array([staged.schema], pa.binary()),
            ],
            names=["partition", "rows", "nbytes", "place", "schema"],
        )
