"""Runs a pipeline: turns the YAML file's parts into DataFrames and one streaming query."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.utils import is_remote

from semistream.engine.conditions import from_description
from semistream.errors import ConfigError
from semistream.overload.options import Parking
from semistream.pipeline import Grants, Pipeline, claim_checkpoint, grants
from semistream.pipeline.check import sink_of
from semistream.pipeline.model import Source
from semistream.sinks import open_sink
from semistream.spark import steps
from semistream.spark.enrich import Lookup, enrich
from semistream.spark.foreach import ForeachBatch
from semistream.spark.session import open_session
from semistream.spark.sink import to_warehouse, write_each_batch
from semistream.spark.waiting import drain

_UNITS = {"m": 60_000, "h": 3_600_000, "s": 1000, "ms": 1}


def start(
    spark: SparkSession, pipeline: Pipeline, masters: Sequence[Any], once: bool = False
) -> Any:
    """Build the query and start it."""
    writer = _writer(pipeline, read_source(spark, pipeline.source), masters)
    claim_checkpoint(pipeline)
    writer = writer.queryName(pipeline.name).option("checkpointLocation", pipeline.checkpoint)
    if once or pipeline.trigger == "once":
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=_interval(pipeline.trigger)).start()


def _writer(pipeline: Pipeline, df: DataFrame, masters: Sequence[Any]) -> Any:
    lookups = _lookups(pipeline, masters)
    granted = grants(pipeline, masters)
    join: dict[str, Any] = {"memory": granted.lookups, "using": pipeline.using}
    sink = pipeline.sink
    dead = pipeline.dead_letter
    if pipeline.waits:
        waiting = {**waiting_options_of(pipeline), "batch_time": pipeline.batch_time}
        unmatched = None if pipeline.parking is None else "park"
        return write_each_batch(
            df,
            lookups,
            output=sink.output,
            unmatched=unmatched,
            steps=_steps(pipeline, granted),
            **waiting,
            **join,
            **_place(pipeline),
        )
    if dead is not None:
        # Steps receive only matched rows; rows that they drop are not dead letters.
        rows = steps.with_reason(df, lookups, **join)
        return rows.writeStream.foreachBatch(
            ForeachBatch(
                (sink_of(pipeline), lambda part: apply(pipeline, granted, steps.matched(part))),
                (open_sink(dead.output, path=dead.path), steps.dead_letters),
            )
        )
    if sink.output != "spark" and not pipeline.steps:
        write = to_warehouse if is_remote() else write_each_batch
        return write(df, lookups, output=sink.output, **join, **_place(pipeline))
    rows = apply(pipeline, granted, enrich(df, lookups, **join) if lookups else df)
    if sink.output == "spark":
        writer = rows.writeStream.format(str(sink.format))
        writer = writer.options(**{name: _text(v) for name, v in sink.options.items()})
        return writer.option("path", sink.path) if sink.path else writer
    return to_warehouse(rows, output=sink.output, **_place(pipeline))


def _lookups(pipeline: Pipeline, masters: Sequence[Any]) -> list[Lookup]:
    return [
        Lookup(master, one.on, one.how, one.select, from_description(one.where) or None, one.as_of)
        for one, master in zip(
            pipeline.lookups, masters, strict=False
        )  # followed by those of the steps
    ]


def waiting_options_of(pipeline: Pipeline) -> dict[str, Any]:
    """Where rows wait, and where they go in the end."""
    parking, dead, topic = pipeline.parking, pipeline.dead_letter, pipeline.deferred_topic
    return {
        "backlog": pipeline.backlog,
        "deferred_topic": None if topic is None else topic.model_dump(),
        "parking": None
        if parking is None
        else Parking(os.path.abspath(parking.path), parking.max_age, parking.max_rows),
        "dead_letters": None if dead is None else open_sink(dead.output, path=dead.path),
    }


def drain_pipeline(
    pipeline: Pipeline, masters: Sequence[Any], spark: SparkSession | None = None
) -> dict[str, float]:
    """Serve the rows that wait, while the query is stopped; returns what still waits.

    Steps are Spark's work: without a session, one is opened for them.
    """
    if not pipeline.waits:
        raise ConfigError("no row of this pipeline waits: it has neither batch_time nor parking")
    if pipeline.steps and spark is None:
        spark = open_session(pipeline)
        try:
            return drain_pipeline(pipeline, masters, spark)
        finally:
            spark.stop()
    granted = grants(pipeline, masters)
    return drain(
        pipeline.checkpoint,
        _lookups(pipeline, masters),
        output=pipeline.sink.output,
        memory=granted.lookups,
        using=pipeline.using,
        stream=read_source(spark, pipeline.source) if spark and pipeline.steps else None,
        steps=_steps(pipeline, granted),
        **waiting_options_of(pipeline),
        **_place(pipeline),
    )


def _place(pipeline: Pipeline) -> dict[str, Any]:
    sink = pipeline.sink
    if sink.output == "postgresql":
        names = {"url": sink.url, "table": sink.table, "schema": sink.db_schema}
        return {**names, "patience": sink.patience}
    path = os.path.abspath(str(sink.path))
    return {"path": path, "compression": sink.compression, "durable": sink.durable}


def _steps(pipeline: Pipeline, granted: Grants) -> Callable[[DataFrame], DataFrame] | None:
    return (lambda rows: apply(pipeline, granted, rows)) if pipeline.steps else None


def apply(pipeline: Pipeline, granted: Grants, df: DataFrame) -> DataFrame:
    """Apply the steps in order."""
    for number, step in enumerate(pipeline.steps):
        join: dict[str, Any] = {"memory": granted.steps.get(number), "using": pipeline.using}
        if step.compute is not None:
            df = steps.computed(df, step.compute)
        elif step.where is not None:
            df = df.where(step.where)
        elif step.select is not None:
            df = df.selectExpr(*step.select)
        elif step.drop is not None:
            df = df.drop(*step.drop)
        elif step.surrogate_key is not None:
            key = step.surrogate_key
            df = steps.surrogate_key(
                df,
                key.mapping,
                source=key.source,
                key=key.key,
                to=key.to,
                keep=key.keep,
                **join,
            )
        elif step.deduplicate is not None:
            same = step.deduplicate
            df = steps.without_duplicates(df, same.key, same.time, same.within)
        elif step.new_only is not None:
            df = steps.new_tuples(df, step.new_only.master, step.new_only.on, **join)
    return df


def read_source(spark: SparkSession, source: Source) -> DataFrame:
    reader = spark.readStream.format(source.format)
    columns = _ddl(source.columns)
    if source.format == "kafka":
        if source.servers is not None:
            reader = reader.option("kafka.bootstrap.servers", source.servers)
        if source.topic is not None:
            reader = reader.option("subscribe", source.topic)
    elif columns is not None:
        reader = reader.schema(columns)
    reader = reader.options(**{name: _text(value) for name, value in source.options.items()})
    df = reader.load(source.path) if source.path is not None else reader.load()
    if source.format == "kafka":
        df = _messages(df, source, columns)
    if source.where is not None:
        df = df.where(source.where)
    if isinstance(source.select, dict):
        df = df.select(*(f.expr(e).alias(name) for name, e in source.select.items()))
    elif source.select is not None:
        df = df.selectExpr(*source.select)
    return df


def _messages(df: DataFrame, source: Source, columns: str | None) -> DataFrame:
    """The value of each message as columns, and the other message fields that are kept."""
    text = f.col("value").cast("string")
    keep = [
        f.col(name).cast("string").alias(name) if name == "key" else f.col(name)
        for name in source.value.keep
    ]
    if source.value.format == "text":
        return df.select(text.alias("value"), *keep)
    assert columns is not None
    return df.select(f.from_json(text, columns).alias("value"), *keep).select(
        "value.*", *source.value.keep
    )


def _ddl(columns: dict[str, str] | str | None) -> str | None:
    if not isinstance(columns, dict):
        return columns
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in columns.items())


def _interval(trigger: str) -> str:
    if trigger == "now":
        return "0 seconds"
    match = re.fullmatch(r"\s*([\d.]+)\s*([a-z]+)\s*", trigger)
    assert match is not None  # the model has checked it
    unit = "ms" if match[2].startswith(("ms", "milli")) else match[2][0]
    return f"{int(float(match[1]) * _UNITS[unit])} milliseconds"


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
