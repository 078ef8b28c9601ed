"""Steps that Spark applies to joined rows before they are written, in a query whose rows may wait.

    one task:   rows ─> look-ups; deferred, parked ─> Spark's steps ─> sink
                                      └──────────── note ──────────────┘

A task has two functions in Python then, in two processes. The first joins, and writes a note of
what it did with waiting rows to their folder. The second stages the rows, reads the note when its
input has ended, and sends both to the driver. They find each other by the id of the task's attempt,
so rows and note are always of the same attempt, and are committed together.

Steps must work row by row: behind a shuffle, rows are those of other attempts. This is checked when
the query is built.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from semistream.errors import ConfigError, SemistreamError
from semistream.overload.turn import TaskTurn, Turn
from semistream.sinks import Batch, Staged
from semistream.sinks.disk import make_folders
from semistream.spark.foreach import collect_staged, staged_row
from semistream.spark.schema import output_schemas, stream_schema, to_spark_schema
from semistream.spark.sink_options import SinkPlan

if TYPE_CHECKING:
    from semistream.spark.sink import WarehouseWriter

Function = Callable[[DataFrame], DataFrame]


@dataclass(frozen=True)
class Steps:
    """``function`` turns joined rows into rows to write; ``joined`` are their types."""

    function: Function
    joined: Any
    arrow: pa.Schema

    def stage(
        self, df: DataFrame, writer: WarehouseWriter, turn: Turn, batch: Batch
    ) -> list[Staged]:
        """Run a micro-batch."""
        notes = _Notes(turn)
        rows = df.mapInArrow(_Join(writer, turn, notes, self.arrow), self.joined)
        return collect_staged(self.function(rows), _Stage(writer, batch, notes), batch)


def check_steps(df: DataFrame, plan: SinkPlan, function: Function) -> Steps:
    """Check the steps' result against the sink, and that they need no rows of other tasks."""
    from semistream.spark.sink import bind

    session = df.sparkSession
    incoming = stream_schema(df.schema, session)
    _, joined, _ = bind(plan, incoming)
    declared, arrow = output_schemas(df.schema, incoming, joined)
    several = session.range(0, 4, 1, 4)  # one partition alone would need no shuffle
    probe: Any = function(several.mapInArrow(_nothing, declared))
    plan.sink.check(stream_schema(probe.schema, session))
    physical = probe._jdf.queryExecution().executedPlan().toString()
    if "Exchange" in physical:
        raise ConfigError(
            "batch_time and parking need steps that work on each row by itself: aggregates, "
            "windows and duplicates need rows of other tasks; apply them when the rows are written"
        )
    if "MapInArrow" not in physical:
        raise ConfigError("the steps drop every row, whatever it contains: check their conditions")
    return Steps(function, declared, arrow)


def no_rows(df: DataFrame) -> DataFrame:
    """The columns of a stream, and one task without rows."""
    session = df.sparkSession
    return session.createDataFrame(session.sparkContext.parallelize([], 1), df.schema)


def _nothing(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from ()


@dataclass(frozen=True)
class _Notes:
    """From the first function of a task to the second one."""

    turn: Turn
    token: str = field(default_factory=lambda: uuid.uuid4().hex)

    def write(self, text: str) -> None:
        make_folders(self.turn.backlog.disk, self.turn.backlog.folder)
        with open(self._path(), "w") as file:
            file.write(text)

    def take(self) -> str:
        path = self._path()
        try:
            with open(path) as file:
                text = file.read()
        except FileNotFoundError:
            raise SemistreamError(
                "a task wrote rows of another one: the steps of this query shuffle rows, which "
                "batch_time and parking do not allow; nothing is lost"
            ) from None
        with contextlib.suppress(OSError):  # the next commit removes it
            os.unlink(path)
        return text

    def _path(self) -> str:
        context: Any = TaskContext.get()
        name = f"{self.token}-{context.taskAttemptId()}"
        return str(self.turn.backlog.note(self.turn.base, name))


class _Join:
    """Joins the rows of a task and waiting ones."""

    def __init__(
        self, writer: WarehouseWriter, turn: Turn, notes: _Notes, schema: pa.Schema
    ) -> None:
        self._writer, self._turn, self._notes, self._schema = writer, turn, notes, schema

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        task = TaskTurn(self._turn, context.partitionId(), batches)
        _, rows = self._writer.join_with(task)
        for batch in rows:
            yield to_spark_schema(batch, self._schema)
        task.staged()
        self._notes.write(task.changes.to_text())


class _Stage:
    """Stages what the steps have made of the rows."""

    def __init__(self, writer: WarehouseWriter, batch: Batch, notes: _Notes) -> None:
        self._writer, self._batch, self._notes = writer, batch, notes

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        staged = self._writer.sink.stage(batches, None, self._batch, context.partitionId())
        yield staged_row(replace(staged, note=self._notes.take()))
