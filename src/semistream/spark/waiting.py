"""Time budgets and parking in the warehouse sink: the rows of a micro-batch that wait for later.

The driver plans which waiting rows each task may serve, the tasks join and stage rows in one
transfer to Python as always, and one commit changes the sink and the waiting rows. The protocol is
in :mod:`semistream.overload.keeper`; this module runs it inside ``foreachBatch``, and for the rows
that are left when the stream has ended.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from semistream.durations import parse_duration
from semistream.errors import ConfigError, SemistreamError, unknown
from semistream.master import MasterTable
from semistream.overload.keeper import Keeper, Waiting
from semistream.overload.options import Parking
from semistream.overload.topic_rows import TopicRows
from semistream.overload.turn import TaskTurn, Turn
from semistream.sinks import Batch, Sink, Staged, open_sink
from semistream.sinks.files import check_writable
from semistream.spark.batch_version import MicroBatch
from semistream.spark.foreach import batch_of, collect_staged, done, staged_row
from semistream.spark.metrics import note_waiting
from semistream.spark.sink_options import SinkPlan
from semistream.spark.waiting_steps import Steps, check_steps, no_rows

if TYPE_CHECKING:
    from semistream.spark.sink import WarehouseWriter

_DEFAULT = Path("_semistream") / "waiting"  # below the sink's folder


def waiting_options(
    plan: SinkPlan,
    *,
    batch_time: str | float | None = None,
    unmatched: str | None = None,
    parking: Parking | None = None,
    dead_letters: str | os.PathLike[str] | Sink | None = None,
    backlog: str | os.PathLike[str] | None = None,
    deferred_topic: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
) -> Waiting | None:
    """Check the options together; None if no row ever waits."""
    if unmatched not in (None, "park"):
        raise ConfigError(f'unmatched={unmatched!r} is unknown; give "park" or leave it out')
    if (unmatched == "park") != (parking is not None):
        raise ConfigError('give unmatched="park" and parking=ss.Parking(folder) together')
    if batch_time is None and deferred_topic is not None:
        raise ConfigError("deferred_topic needs batch_time")
    if batch_time is None and parking is None:
        if dead_letters is not None or backlog is not None:
            raise ConfigError("dead_letters and backlog need batch_time or parking")
        return None
    seconds = None if batch_time is None else parse_duration(batch_time, "batch_time")
    if seconds == 0:
        raise ConfigError(f"batch_time={batch_time!r}: give a time above zero, such as 5s")
    if parking is not None:
        _check_parking(plan, parking, dead_letters)
    folder = backlog or (parking.path if parking is not None else None)
    if folder is None:
        path = getattr(plan.sink, "path", None)
        if path is None:
            raise ConfigError(
                "batch_time needs backlog=, a folder for deferred rows that driver and executors "
                "share: this sink has no folder of its own"
            )
        folder = Path(path) / _DEFAULT
    check_writable(Path(folder))
    sink = dead_letters
    if isinstance(sink, (str, os.PathLike)):
        sink = open_sink("parquet", path=sink)
    if sink is not None and sink.target == plan.sink.target:
        raise ConfigError(
            f"dead_letters={sink.target!r}: the sink writes there, too; use another folder"
        )
    return Waiting(
        os.path.abspath(folder), seconds, parking, sink, _topic_of(deferred_topic), clock
    )


def split_options(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of :func:`waiting_options`, and those of the sink."""
    names = waiting_options.__kwdefaults__ or {}
    waiting = {name: value for name, value in options.items() if name in names}
    return waiting, {name: value for name, value in options.items() if name not in names}


def _topic_of(given: Mapping[str, Any] | None) -> TopicRows | None:
    if given is None:
        return None
    known = ("servers", "topic", "options")
    for name in given:
        if name not in known:
            raise ConfigError(f"deferred_topic: {unknown('field', str(name), known)}")
    return TopicRows(given.get("servers", ""), given.get("topic", ""), given.get("options") or {})


def _check_parking(plan: SinkPlan, parking: Parking, dead_letters: Any) -> None:
    if dead_letters is None and (parking.max_age is not None or parking.max_rows is not None):
        raise ConfigError(
            "parking with max_age or max_rows needs dead_letters=, a folder for the rows beyond it"
        )
    if parking.recover != "all":
        raise ConfigError(
            f"recover={parking.recover!r} is for a run; the sink commits parked rows by itself"
        )
    if not plan.lookups:
        raise ConfigError("parking needs a look-up")
    for described in plan.lookups:
        if described.how == "left_anti":
            raise ConfigError(
                'how="left_anti" returns unmatched rows at once, and unmatched="park" keeps them; '
                "choose one"
            )
        source = described.open().master
        is_table = isinstance(source, MasterTable) or (
            isinstance(source, (str, os.PathLike)) and (Path(source) / "manifests").is_dir()
        )
        if not is_table or described.version is not None:
            raise ConfigError(
                f"unmatched rows are parked until a new version of the table has their key, but "
                f"{getattr(source, 'path', source)} has none: give a master table that is not "
                "opened at a fixed version"
            )


class WaitingBatch:
    """A function for ``foreachBatch``: joins, writes and commits with rows that wait."""

    def __init__(
        self,
        writer: WarehouseWriter,
        plan: SinkPlan,
        options: Waiting,
        steps: Steps | None = None,
    ) -> None:
        self._writer = writer
        self._plan = plan
        self._options = options
        self._steps = steps
        self._keeper: Keeper | None = None

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        query, run = batch_of(df)
        batch, sink = Batch(query, batch_id), self._plan.sink
        done.check_not_written(run, batch, sink)
        if self._keeper is None or self._keeper.backlog.query != query:
            self._keeper = Keeper(self._options, sink, query)
        keeper = self._keeper
        turn = keeper.begin(
            batch_id,
            df.rdd.getNumPartitions(),
            lambda: self._writer.versions(MicroBatch(query, batch_id)),
        )
        if self._steps is None:
            staged = collect_staged(df, _Task(self._writer, turn, batch), batch)
        else:
            staged = self._steps.stage(df, self._writer, turn, batch)
        keeper.commit(staged, batch, turn)
        note_waiting(query, batch_id, keeper.state.figures(self._options.clock()))
        done.add(run, batch, sink)


class _Task:
    """Joins the rows of a task and waiting ones, and stages them."""

    def __init__(self, writer: WarehouseWriter, turn: Turn, batch: Batch) -> None:
        self._writer, self._turn, self._batch = writer, turn, batch

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context: Any = TaskContext.get()
        yield staged_row(
            stage(self._writer, self._turn, self._batch, context.partitionId(), batches)
        )


def stage(
    writer: WarehouseWriter,
    turn: Turn,
    batch: Batch,
    partition: int,
    own: Iterable[pa.RecordBatch],
) -> Staged:
    """Run one task's part of a turn."""
    task = TaskTurn(turn, partition, own)
    schema, rows = writer.join_with(task)
    staged = writer.sink.stage(rows, schema, batch, partition)
    task.staged()
    return replace(staged, note=task.changes.to_text())


def drain(
    checkpoint: str | os.PathLike[str],
    lookups: Any = (),
    *,
    clock: Callable[[], float] = time.time,
    stream: DataFrame | None = None,
    steps: Callable[[DataFrame], DataFrame] | None = None,
    **options: Any,
) -> dict[str, float]:
    """Serve the rows that wait when a stream has ended: deferred ones, and parked ones whose key
    is in the newest version of their table. Exactly once, and without a Spark session.

    Options as of :func:`to_warehouse`, with the query's checkpoint instead of its stream; a drain
    takes as long as it needs, whatever ``batch_time`` is. The query must be stopped; if it runs,
    its current batch or the drain fails, and nothing is lost. Returns what still waits:
    ``parked``, and 0 ``deferred``. With ``steps``, give the ``stream`` for its columns; Spark then
    applies them.
    """
    from semistream.spark.registry import REGISTRY
    from semistream.spark.sink import WarehouseWriter
    from semistream.spark.sink_options import options_of, plan_of

    waiting, about_sink = split_options(options)
    texts = options_of(lookups, **about_sink)
    plan = plan_of(texts)
    unmatched = "park" if waiting.get("parking") else None
    waiting |= {"batch_time": 1, "unmatched": unmatched, "clock": clock}
    waits = waiting_options(plan, **waiting)
    assert waits is not None
    keeper = Keeper(waits, plan.sink, query_of(checkpoint))
    writer = WarehouseWriter(texts, None, slots=1)
    turn = keeper.begin(0, 1, lambda: writer.versions(None), limited=False)
    try:
        if keeper.state.rows:
            batch = keeper.drain_batch(turn)
            if steps is None or stream is None:
                staged = [stage(writer, turn, batch, 0, ())]
            else:
                rest = check_steps(stream, plan, steps)
                staged = rest.stage(no_rows(stream), writer, turn, batch)
            keeper.commit(staged, batch, turn)
    finally:
        REGISTRY.close()
    return keeper.state.figures(clock())


def query_of(checkpoint: str | os.PathLike[str]) -> str:
    """The id of the query to which a checkpoint belongs."""
    path = Path(checkpoint) / "metadata"
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SemistreamError(
            f"{path} does not name a query: {error}; give the checkpointLocation of a query that "
            "has run"
        ) from error
