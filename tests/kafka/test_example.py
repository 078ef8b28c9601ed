"""examples/kafka_to_delta.py with a real broker."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")

from kafka.broker import connector

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "kafka_to_delta.py"


def test_the_example(broker: str, tmp_path: Path) -> None:
    from pyspark.sql import SparkSession

    ((setting, value),) = connector().items()
    spark = SparkSession.builder.master("local[1]").config(setting, value).getOrCreate()
    try:
        orders = [{"order_id": n, "product_id": n % 90 + 1, "quantity": 1} for n in range(300)]
        messages = spark.createDataFrame([(json.dumps(o),) for o in orders], "value string")
        writer = messages.write.format("kafka").option("topic", "example-orders")
        writer.option("kafka.bootstrap.servers", broker).save()
    finally:
        spark.stop()
    spec = importlib.util.spec_from_file_location("kafka_to_delta", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    assert example.main(broker, str(tmp_path), f", {setting}: {json.dumps(value)}") == 300
