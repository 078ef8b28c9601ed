"""A pipeline from a real Kafka topic into a Delta table: every message once, over restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pydantic")

from kafka.broker import connector
from semistream.pipeline import check, load

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

PRODUCTS = pa.table({"product_id": range(0, 400, 2), "price": [i * 1.5 for i in range(200)]})
PIPELINE = """\
name: orders
source:
  format: kafka
  servers: ${{BROKER}}
  topic: orders
  schema: {{order_id: long, product_id: long, quantity: int}}
  options: {{startingOffsets: earliest, maxOffsetsPerTrigger: 150}}
lookups:
  - {{master: "{folder}/products", on: product_id, how: left, select: [price]}}
sink: {{output: delta, path: "{folder}/warehouse"}}
checkpoint: {folder}/checkpoint
memory: 64MB
spark:
  spark.master: local[2]
  spark.driver.memory: 1g
  {connector}
"""


def orders(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "order_id": numbers,
            "product_id": [None if n % 50 == 0 else n * 7 % 420 for n in numbers],
            "quantity": pa.array([n % 5 for n in numbers], pa.int32()),
        }
    )


def send(spark: Any, broker: str, table: pa.Table, topic: str = "orders") -> None:
    messages = [(json.dumps(row),) for row in table.to_pylist()]
    writer = spark.createDataFrame(messages, "value string").write.format("kafka")
    writer.option("kafka.bootstrap.servers", broker).option("topic", topic).save()


def test_from_kafka_to_delta_once(broker: str, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    from semistream.spark.listener import Metrics
    from semistream.spark.pipeline import start
    from semistream.spark.session import open_session
    from semistream.spark.watch import watch

    ss.MasterTable.build(PRODUCTS, tmp_path / "products", key="product_id")
    file = tmp_path / "pipeline.yaml"
    ((setting, value),) = connector().items()
    file.write_text(PIPELINE.format(folder=tmp_path, connector=f"{setting}: {value}"))
    pipeline, document = load(file, {"BROKER": broker})
    masters = check(pipeline, document)
    spark = open_session(pipeline)
    lines: list[str] = []
    try:
        sent = orders(0, 500)
        send(spark, broker, sent)
        for first, count in ((500, 300), (800, 100)):
            with Metrics(spark) as metrics:
                query = start(spark, pipeline, masters, once=True)
                watch(query, metrics, lambda figures: lines.append(str(figures)))
            rows = naive.rows_of([DeltaTable(tmp_path / "warehouse").to_pyarrow_table()])
            naive.same_rows(rows, naive.join(sent, PRODUCTS, "product_id", "left"))
            more = orders(first, count)
            send(spark, broker, more)
            sent = pa.concat_tables([sent, more])
    finally:
        spark.stop()
    assert any("hit rate" in line and "messages" in line for line in lines), lines
