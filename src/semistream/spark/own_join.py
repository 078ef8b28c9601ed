"""Spark's own join of a pipeline's stream with the same table, for comparison."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from semistream.pipeline import Pipeline
from semistream.spark.interrupts import deferred_interrupts, noted_interrupts
from semistream.spark.pipeline import read_source
from semistream.spark.session import open_session

_POLL = 0.1


def own_join_batches(
    pipeline: Pipeline,
    table: Path,
    key: str,
    columns: list[str],
    folder: Path,
    seconds: float,
    show: Callable[[int, float], None] = lambda rows, seconds: None,
) -> list[tuple[int, float]]:
    """Rows and seconds of micro-batches that Spark joins with a Parquet file by itself.

    The rows are written to Parquet files in ``folder``. Stops after ``seconds``, but not before the
    second batch, because the first one also starts the query; after three times as long in any
    case.
    """
    session = None
    try:
        with deferred_interrupts():
            session = open_session(pipeline)
            products = session.read.parquet(str(table)).select(key, *columns)
            stream = read_source(session, pipeline.source)
            writer = stream.join(products, key).writeStream.format("parquet")
            writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
            query = writer.trigger(availableNow=True).start(str(folder / "rows"))
        found: list[tuple[int, float]] = []
        began = time.monotonic()
        with noted_interrupts() as stop:
            while not stop.is_set():
                ended = query.awaitTermination(_POLL)  # type: ignore[arg-type] # it takes fractions
                done = [_figures(progress) for progress in query.recentProgress]
                done = [figures for figures in done if figures[0]]
                for figures in done[len(found) :]:
                    show(*figures)
                found = done
                elapsed = time.monotonic() - began
                if ended or (elapsed > seconds and (len(found) > 1 or elapsed > 3 * seconds)):
                    break
            query.stop()
        if stop.is_set():
            raise KeyboardInterrupt
        return found
    finally:
        if session is not None:
            with deferred_interrupts():
                session.stop()


def _figures(progress: Any) -> tuple[int, float]:
    seconds = progress["durationMs"].get("triggerExecution", 0) / 1000
    return int(progress["numInputRows"]), seconds
