"""``format("semistream")``: joins and writes in one transfer to Python, exactly once.

    Spark -> Arrow -> runs of the look-ups -> staged files or tables      (every task)
    messages of all tasks -> one commit per (query, batch)                (the driver)

The rows never return to the JVM. The sink (:mod:`semistream.sinks`) makes a batch appear exactly
once; Spark identifies the batch and runs it until it is committed.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from semistream.engine.binding import Binding, key_pairs
from semistream.errors import ConfigError, SemistreamError
from semistream.joins import open_source
from semistream.master import MasterTable
from semistream.master.mapped_reader import RESIDENT
from semistream.master.pages import PageSource
from semistream.overload.options import Parking
from semistream.overload.turn import TaskTurn
from semistream.sinks import Batch, Sink, Staged
from semistream.spark.batch_version import MicroBatch, micro_batch, pinned_version
from semistream.spark.enrich import Lookup, bound_lookup, join_named, task_slots
from semistream.spark.metrics import TaskMetrics, task_metrics
from semistream.spark.schema import check_key_collations, master_field, spark_arrow_type
from semistream.spark.sink_options import SinkPlan, options_of, plan_of
from semistream.spark.versions import (
    SINK,
    DataSource,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
    has,
    require,
)
from semistream.spark.worker import BoundLookup, Enrichment
from semistream.spark.worker_python import check_worker_python
from semistream.spark.worker_socket import acknowledge_at_once
from semistream.spark.workload_source import register_workload
from semistream.tuning.auto import choose
from semistream.warmup.background import warm_up_in_background

FORMAT = "semistream"


def register(spark: SparkSession) -> None:
    """Register ``format("semistream")`` with a session; idempotent.

    Also registers ``format("semistream-workload")``, the stream of :mod:`semistream.workload`.
    """
    register_workload(spark)
    # A class per session carries the session's accumulator and task slots.
    kind = type(
        "RegisteredWarehouse",
        (WarehouseSource,),
        {"metrics": task_metrics(spark), "slots": task_slots(spark), "__module__": "__main__"},
    )
    spark.dataSource.register(kind)


def to_warehouse(
    df: DataFrame,
    lookups: Sequence[Lookup] | Lookup = (),
    *,
    output: str = "parquet",
    memory: int | str = "256MB",
    using: str = "auto",
    batch_time: str | float | None = None,
    unmatched: str | None = None,
    parking: Parking | None = None,
    dead_letters: str | os.PathLike[str] | Sink | None = None,
    backlog: str | os.PathLike[str] | None = None,
    deferred_topic: Mapping[str, Any] | None = None,
    **options: Any,
) -> DataStreamWriter:
    """A stream writer that joins ``df`` with master tables and writes the result exactly once.

    Tables, columns and the target are checked immediately. Set the trigger and the
    ``checkpointLocation`` on the writer, and start it. A Spark that has no Arrow sinks in Python
    runs :func:`write_each_batch`.

    Parameters
    ----------
    df
        A streaming DataFrame.
    lookups
        One :class:`Lookup` or several, joined in order. An empty list writes without joining.
    output
        ``parquet`` or ``delta`` (with ``path=``), or ``postgresql`` (``url=``, ``table=``,
        optionally ``schema=``).
    memory, using
        As in :func:`semistream.enrich`.
    batch_time
        The time that a micro-batch may take, such as ``"5s"``. Rows that would exceed it are
        deferred: kept in ``backlog``, and served by later micro-batches, oldest first.
    unmatched, parking
        ``unmatched="park"`` with ``ss.Parking(folder, max_age=, max_rows=)``: rows without a
        match wait until a version of the table has their key.
    dead_letters
        The folder for parked rows beyond ``max_age`` or ``max_rows``, with a reason (Parquet).
    backlog
        The folder for waiting rows, which driver and executors share. Default: that of
        ``parking``, or one below the sink's ``path``.
    deferred_topic
        Keep deferred rows in a Kafka topic instead: ``{"servers": "host:9092", "topic": "name"}``,
        and ``options`` of the client.
    """
    waiting: dict[str, Any] = {
        "batch_time": batch_time,
        "unmatched": unmatched,
        "parking": parking,
        "dead_letters": dead_letters,
        "backlog": backlog,
        "deferred_topic": deferred_topic,
    }
    options |= {"output": output, "memory": memory, "using": using}
    if any(value is not None for value in waiting.values()) or not has(SINK):
        return write_each_batch(df, lookups, **waiting, **options)
    register(df.sparkSession)
    texts, plan, joined = _checked(df, lookups, **options)
    plan.sink.check(joined)
    return df.writeStream.format(FORMAT).options(**texts)


def write_each_batch(
    df: DataFrame,
    lookups: Sequence[Lookup] | Lookup = (),
    *,
    steps: Callable[[DataFrame], DataFrame] | None = None,
    **options: Any,
) -> DataStreamWriter:
    """:func:`to_warehouse` by ``foreachBatch``, with the same options: the same rows in the same
    transfer to Python, and the same ledger, so that a query may be restarted with either.

    The driver commits by itself, where Spark would start four further Python processes to look
    up, plan, create and commit a data source: seconds of the first batch.

    With ``batch_time`` or ``parking``, Spark applies ``steps`` to joined rows before they are
    written; each must work on a row by itself. Otherwise use :func:`enrich` first.
    """
    from semistream.spark.foreach import ForeachBatch
    from semistream.spark.waiting import WaitingBatch, split_options, waiting_options
    from semistream.spark.waiting_steps import check_steps

    about_waiting, about_sink = split_options(options)
    texts, plan, joined = _checked(df, lookups, **about_sink)
    session = df.sparkSession
    writer = WarehouseWriter(texts, task_metrics(session), task_slots(session))
    waiting = waiting_options(plan, **about_waiting)
    if waiting is not None:
        if is_remote():
            raise ConfigError(
                "batch_time and parking need a classic session: the driver plans which rows wait"
            )
        if steps is None:
            plan.sink.check(joined)
            return df.writeStream.foreachBatch(WaitingBatch(writer, plan, waiting))
        checked = check_steps(df, plan, steps)
        return df.writeStream.foreachBatch(WaitingBatch(writer, plan, waiting, checked))
    if steps is not None:
        raise ConfigError("steps need batch_time or parking; otherwise use ss.enrich before")
    plan.sink.check(joined)
    return df.writeStream.foreachBatch(
        ForeachBatch((plan.sink, lambda part: part), join=writer.join)
    )


def _checked(
    df: DataFrame, lookups: Sequence[Lookup] | Lookup, **options: Any
) -> tuple[dict[str, str], SinkPlan, pa.Schema]:
    """The options of the sink and the joined columns, after what can be checked early."""
    from semistream.spark.schema import stream_schema

    check_worker_python(df.sparkSession)
    warm_up_in_background()
    texts = options_of(lookups, **options)
    plan = plan_of(texts)
    _check_key_collations(plan, df.schema)
    _, joined, _ = bind(plan, stream_schema(df.schema, df.sparkSession))
    return texts, plan, joined


def bind(
    plan: SinkPlan, incoming: pa.Schema, batch: MicroBatch | None = None
) -> tuple[list[BoundLookup], pa.Schema, list[pa.Schema]]:
    """The look-ups as sent to workers, the schema of the rows to write, and those of the rows that
    each look-up receives.

    Within a batch, tables are opened at the batch's pinned versions; newer ones may have other
    columns.
    """
    schema, bound, stages = incoming, [], []
    for described in plan.lookups:
        lookup = described.open()
        stages.append(schema)
        source, follow = _opened(lookup, batch)
        binding = Binding(source, lookup.on, lookup.select, lookup.how, lookup.where, lookup.as_of)
        binding.bind(schema)
        assert binding.schema is not None
        for field in list(binding.schema)[len(schema) :]:
            master_field(field)  # raises if Spark could not read it back
        schema = binding.schema
        chosen = choose(join_named(plan.using), source, lookup.how, drained=True)
        one = bound_lookup(lookup, source, chosen)
        bound.append(replace(one, follow=follow, resident=described.mapped == RESIDENT))
    fields = [
        field if i < len(incoming) else field.with_type(spark_arrow_type(field.type))
        for i, field in enumerate(schema)
    ]
    return bound, pa.schema(fields), stages


def _opened(lookup: Lookup, batch: MicroBatch | None) -> tuple[PageSource, bool]:
    """The table of a look-up, and whether batches of the query follow its newest version."""
    path = lookup.master
    if batch is not None and isinstance(path, str) and (Path(path) / "manifests").is_dir():
        manifests = (Path(path) / "manifests").stat()
        identity = manifests.st_dev, manifests.st_ino, manifests.st_mtime_ns
        return _table_at(path, pinned_version(path, batch), identity), True
    source = open_source(path)
    return source, isinstance(source, MasterTable) and not source.pinned


@functools.lru_cache(maxsize=8)
def _table_at(path: str, version: int, identity: tuple[int, ...]) -> MasterTable:
    """A version, opened once and not for every task; ``identity`` changes with the folder, if a
    table was removed and built again."""
    return MasterTable.open(path, version)


def _check_key_collations(plan: SinkPlan, schema: StructType) -> None:
    for lookup in plan.lookups:
        check_key_collations(schema, list(key_pairs(lookup.on)))


class Message(WriterCommitMessage):
    """The commit message of a task."""

    def __init__(self, staged: Staged) -> None:
        self.staged = staged


class WarehouseSource(DataSource):
    """The entry point for Spark, which creates a new instance whenever it needs one."""

    metrics: ClassVar[TaskMetrics | None] = None
    slots: ClassVar[int | None] = None

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        require(SINK)
        if overwrite:
            raise ConfigError(
                "outputMode 'complete' is not supported: the sink only appends rows; use 'append'"
            )
        _check_key_collations(plan_of(self.options), schema)
        return WarehouseWriter(dict(self.options), self.metrics, self.slots)

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        raise ConfigError(
            f"format({FORMAT!r}) is for df.writeStream; for a batch, use ss.enrich and df.write"
        )


class WarehouseWriter(DataSourceStreamArrowWriter):
    """``write`` runs in the workers; ``commit`` and ``abort`` in a process of the driver."""

    def __init__(
        self, options: dict[str, str], metrics: TaskMetrics | None, slots: int | None
    ) -> None:
        self.options = options
        self.metrics = metrics
        self.slots = slots

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context = TaskContext.get()
        batch = micro_batch()
        if context is None or batch is None:
            raise SemistreamError("the warehouse sink ran outside of a micro-batch")
        plan = plan_of(self.options)
        rows = self.join(iterator)
        staged = plan.sink.stage(rows, None, Batch(batch.query, batch.batch), context.partitionId())
        return Message(staged)

    def join(self, iterator: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Join the rows of a task; used in the sink, and in ``foreachBatch``."""
        acknowledge_at_once()
        plan = plan_of(self.options)
        first = next((batch for batch in iterator if batch.num_rows), None)
        if first is None:
            return
        from itertools import chain

        batches = chain([first], iterator)
        if not plan.lookups:
            yield from batches
            return
        bound, schema, _ = bind(plan, first.schema, micro_batch())
        yield from _in_schema(self._task(bound, schema)(batches), schema)

    def join_with(self, waiting: TaskTurn) -> tuple[pa.Schema | None, Iterator[pa.RecordBatch]]:
        """Join the rows of a task and those that wait; their schema, and an iterator over them.

        When it is exhausted, ``waiting.changes`` says what else became of them.
        """
        plan = plan_of(self.options)
        if waiting.schema is None:
            return None, iter(())
        bound, schema, waiting.stages = bind(plan, waiting.schema, micro_batch())

        def rows() -> Iterator[pa.RecordBatch]:
            admitted = waiting.admit()
            if bound:
                task = self._task(bound, schema)
                admitted = task.serve(admitted, waiting.schema, waiting)
            yield from _in_schema(admitted, schema)
            waiting.finish()

        return schema, rows()

    def versions(self, batch: MicroBatch | None) -> list[int]:
        """The versions of the tables that a batch reads, by look-up."""
        lookups = plan_of(self.options).lookups
        return [_opened(described.open(), batch)[0].version for described in lookups]

    def _task(self, bound: Sequence[BoundLookup], schema: pa.Schema) -> Enrichment:
        return Enrichment(
            name=FORMAT,
            lookups=tuple(bound),
            memory=plan_of(self.options).memory,
            slots=self.slots,
            schema=schema,
            metrics=self.metrics,
        )

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        staged = [message.staged for message in messages if message is not None]
        if staged:
            self.sink.commit(staged, Batch(staged[0].batch.query, batchId))

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        staged = [message.staged for message in messages if message is not None]
        # If the server was unreachable at the commit, it still is, and Spark would report this
        # error instead of the first. A later commit removes what is left.
        with contextlib.suppress(SemistreamError):
            if staged:
                self.sink.abort(staged, Batch(staged[0].batch.query, batchId))

    @property
    def sink(self) -> Sink:
        return plan_of(self.options).sink


def _in_schema(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Nullability may differ between the runs of two tasks."""
    for rows in batches:
        yield (
            pa.RecordBatch.from_arrays(rows.columns, schema=schema)
            if (rows.schema != schema and rows.schema.types == schema.types)
            else rows.cast(schema)
        )
