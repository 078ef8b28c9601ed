"""Exactly-once writes from ``foreachBatch``, for streams that Spark's own plan enriches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from semistream.errors import ConfigError
from semistream.sinks import Batch, Sink, Staged
from semistream.sinks.postgresql import PostgresWarehouse
from semistream.spark.batch_version import QUERY
from semistream.spark.errors import reraise_semistream_errors

_MESSAGE = "partition int, rows long, nbytes long, name string, schema binary, note string"
_RUN = "spark.jobGroup.id"  # Spark uses the run id as the job group
_REMEMBERED = 1000  # (run, sink) pairs of this process whose last batch is kept
Part = Callable[[DataFrame], DataFrame]
Join = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class ForeachBatch:
    """A function for ``foreachBatch`` that writes parts of each micro-batch to warehouses.

    Each warehouse receives its part exactly once, however often Spark runs the batch. A batch that
    failed between two warehouses is completed by its replay. Every route has its own ledger
    entries, even if two routes write to the same place.

    ``join`` is applied to the rows of a task before they are written, in the same transfer to
    Python.
    """

    def __init__(
        self, *routes: tuple[Sink, Part], name: str | None = None, join: Join | None = None
    ) -> None:
        self._routes = routes
        self._name = name
        self._join = join

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        query, run = batch_of(df)
        several = len(self._routes) > 1
        if several:
            df = df.persist()
        try:
            for number, (sink, part) in enumerate(self._routes):
                batch = Batch(_key(query, self._name, number), batch_id)
                done.check_not_written(run, batch, sink)
                task = _Stage(sink, batch, self._join)
                sink.commit(collect_staged(part(df), task, batch), batch)
                done.add(run, batch, sink)
        finally:
            if several:
                df.unpersist()


def batch_of(df: DataFrame) -> tuple[str, str | None]:
    """The ids of the query and of its run, inside ``foreachBatch``."""
    context = df.sparkSession.sparkContext
    query = context.getLocalProperty(QUERY)
    if query is None:
        raise ConfigError("pass this function to writeStream.foreachBatch; do not call it")
    return query, context.getLocalProperty(_RUN)


def collect_staged(df: DataFrame, task: Any, batch: Batch) -> list[Staged]:
    """Run ``task``, which returns a :func:`staged_row`, on every partition."""
    with reraise_semistream_errors():
        rows = df.mapInArrow(task, _MESSAGE).collect()
    return [
        Staged(batch, row.partition, row.rows, row.nbytes, row.name, bytes(row.schema), row.note)
        for row in rows
    ]


def staged_row(staged: Staged) -> pa.RecordBatch:
    """A task's message to the driver."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([staged.partition], pa.int32()),
            pa.array([staged.rows], pa.int64()),
            pa.array([staged.nbytes], pa.int64()),
            pa.array([staged.name]),
            pa.array([staged.schema], pa.binary()),
            pa.array([staged.note]),
        ],
        names=["partition", "rows", "nbytes", "place", "schema", "note"],
    )


def _key(query: str, name: str | None, number: int) -> str:
    """The ledger key of a route; the first route without a name uses the query id."""
    return "-".join([query, *([name] if name else []), *([str(number)] if number else [])])


class _Done:
    """The last batch that each run committed, to detect two sinks with the same ledger key.

    A run of a query never repeats a batch. If the same batch comes twice within a run, two sinks
    share a key, and the second one's rows would be skipped as already written.
    """

    def __init__(self) -> None:
        self._batches: dict[tuple[str | None, str, str], int] = {}

    def check_not_written(self, run: str | None, batch: Batch, sink: Sink) -> None:
        if run is None:
            return  # without a run id, this may be a replay after an earlier run's commit
        if self._batches.get((run, batch.query, sink.target)) == batch.number:
            raise ConfigError(
                f"two sinks of one foreachBatch function write batch {batch.number} to "
                f"{sink.target}, so the second would be skipped as already written; give each a "
                'route: PostgresSink(url, table, route="late orders")'
            )

    def add(self, run: str | None, batch: Batch, sink: Sink) -> None:
        key = (run, batch.query, sink.target)
        self._batches.pop(key, None)
        self._batches[key] = batch.number
        while len(self._batches) > _REMEMBERED:
            del self._batches[next(iter(self._batches))]


done = _Done()


class PostgresSink(ForeachBatch):
    """Writes each micro-batch to a PostgreSQL table exactly once.

    ``enriched.writeStream.foreachBatch(ss.PostgresSink(url, "facts")).start()``. The tasks copy
    their rows in parallel; one transaction then makes them visible and inserts (query, batch)
    into a ledger, so that a replayed batch adds nothing.

    Parameters
    ----------
    url
        ``postgresql://user:password@host/database``.
    table, schema
        The target table; names are quoted. The table is created if it does not exist.
    patience
        Seconds to wait for an unreachable server, or for a lock that another connection holds.
    route
        A distinct ledger key, for a function that calls several sinks of one table. It must not
        change between restarts.
    """

    def __init__(
        self,
        url: str,
        table: str,
        *,
        schema: str | None = None,
        patience: float = 30.0,
        route: str | None = None,
    ) -> None:
        sink = PostgresWarehouse(url, table, schema, patience)
        super().__init__((sink, lambda df: df), name=route)


class _Stage:
    """The task: joins its rows, if there is a join, and stages them."""

    def __init__(self, sink: Sink, batch: Batch, join: Join | None) -> None:
        self._sink = sink
        self._batch = batch
        self._join = join

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        rows = batches if self._join is None else self._join(iter(batches))
        staged = self._sink.stage(rows, None, self._batch, context.partitionId())
        yield staged_row(staged)
