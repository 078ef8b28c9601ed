"""Spark's own join of a pipeline's stream with the same table, for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semistream.pipeline import Pipeline
from semistream.spark.pipeline import open_session, read_source

_POLL = 0.1


def own_join_batches(
    pipeline: Pipeline,
    table: Path,
    key: str,
    columns: list[str],
    checkpoint: Path,
    seconds: float,
    show: Callable[[int, float], None] = lambda rows, seconds: None,
) -> list[tuple[int, float]]:
    """Rows and seconds of micro-batches that Spark joins with a Parquet file by itself.

    The rows are discarded. Stops after ``seconds``, but not before the second batch, because the
    first one also starts the query; after three times as long in any case.
    """
    session = open_session(pipeline)
    try:
        products = session.read.parquet(str(table)).select(key, *columns)
        stream = read_source(session, pipeline.source)
        writer = stream.join(products, key).writeStream.format("noop")
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = writer.trigger(availableNow=True).start()
        found: list[tuple[int, float]] = []
        began = time.monotonic()
        while True:
            ended = query.awaitTermination(_POLL)  # type: ignore[arg-type] # it takes fractions
            done = [_figures(progress) for progress in query.recentProgress]
            done = [figures for figures in done if figures[0]]
            for figures in done[len(found) :]:
                show(*figures)
            found = done
            elapsed = time.monotonic() - began
            if ended or (elapsed > seconds and (len(found) > 1 or elapsed > 3 * seconds)):
                break
        session.sparkContext.setLogLevel("OFF")  # stopping a batch midway logs errors
        query.stop()
        return found
    finally:
        session.stop()


def _figures(progress: Any) -> tuple[int, float]:
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    return int(progress["numInputRows"]), seconds
