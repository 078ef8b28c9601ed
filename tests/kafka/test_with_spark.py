"""Deferred rows of a Spark query in a real Kafka topic.

The last file of this folder: its session has no Kafka connector, and the other tests, which need
one, start Spark for the whole process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark")

from kafka.test_sync import create
from semistream.spark.listener import Metrics
from semistream.spark.sink import write_each_batch
from semistream.spark.waiting import drain
from spark import clocks
from spark.streams import feed, master, products, sales, stream_of

SMALL = "spark.sql.execution.arrow.maxRecordsPerBatch"
pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_a_spark_query_that_is_restarted(spark: Any, broker: str, tmp_path: Path) -> None:
    """Two runs of one query defer rows to the topic and serve those of the run before."""
    create(broker, "orders-deferred", partitions=2)
    master(tmp_path / "products")
    lookup = ss.Lookup(str(tmp_path / "products"), on="product_id")
    place = {
        "path": str(tmp_path / "out"),
        "memory": "16MB",
        "deferred_topic": {"servers": broker, "topic": "orders-deferred"},
    }
    clocks.by_value()
    before = spark.conf.get(SMALL)
    spark.conf.set(SMALL, "20")
    deferred = []
    try:
        for run in range(2):
            for part in range(2):
                feed(tmp_path / "in", sales(200, start=400 * run + 200 * part))
            stream = stream_of(spark, tmp_path / "in").repartition(2)
            clock = clocks.Ticking()
            writer = write_each_batch(stream, lookup, batch_time="4s", clock=clock, **place)
            writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
            with Metrics(spark) as metrics:
                writer.trigger(availableNow=True).start().awaitTermination()
                deferred.append(metrics.records[-1]["deferred"])
            waiting = tmp_path / "out" / "_semistream" / "waiting"
            assert list(waiting.rglob("*.arrow")) == [], "rows are in the topic, not in files"
    finally:
        spark.conf.set(SMALL, before)
    assert min(deferred) > 0
    expected = naive.join(sales(800), products(), "product_id")
    early = naive.rows_of([pq.read_table(tmp_path / "out")])
    assert 0 < len(early) < len(expected)
    assert not set(early) - set(expected)
    assert drain(tmp_path / "checkpoint", lookup, **place)["deferred"] == 0
    naive.same_rows(naive.rows_of([pq.read_table(tmp_path / "out")]), expected)
