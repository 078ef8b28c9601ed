"""Executes docs/tutorial.md as written, with a real broker."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pydantic")
pytest.importorskip("confluent_kafka")

from kafka.broker import connector
from tutorial import Reader

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]


def test_the_tutorial(broker: str, tmp_path: Path) -> None:
    from deltalake import DeltaTable

    reader = Reader(tmp_path, KAFKA_SERVERS=broker)
    reader.does("generate relation")
    reader.does("master build")
    assert "100,000" in reader.does("master info")
    assert "42          216.75  3034" in reader.does("master get")
    pipeline = reader.block("yaml", "name: orders")
    ((setting, value),) = connector().items()
    # the repository does not have it: use spark.jars, as the tutorial says
    if setting == "spark.jars":
        pipeline += f"spark:\n  spark.jars: {value}\n"
    (tmp_path / "orders.yaml").write_text(pipeline)
    assert "100,000 rows" in reader.does("run orders.yaml --dry-run")

    reader.python("Producer")
    orders = [
        {"order_id": i, "product_id": i * 37 % 100_000 + 1, "quantity": 1 + i % 4}
        for i in range(2_999)
    ]
    orders.append({"order_id": 2_999, "product_id": 0, "quantity": 4})
    said = reader.runs_until(r"run orders\.yaml --ui$", "| 3,000 rows |")
    assert re.search(r"hit rate \d+% \| batch time [\d.]+ s \| lag 0 messages", said)

    assert "amount_sum" in reader.python("DeltaTable")
    products = pq.read_table(tmp_path / "products.parquet")
    joined = naive.join(
        pa.Table.from_pylist(orders), products, "product_id", select=["price", "supplier_id"]
    )
    expected = [(*row, row[2] * row[3]) for row in joined]
    found = DeltaTable(tmp_path / "data/warehouse/orders").to_pyarrow_table()
    naive.same_rows(naive.rows_of([found]), expected)
    dead = pq.read_table(tmp_path / "data/warehouse/orders_unmatched")
    assert dead.num_rows == len(orders) - len(expected) == 1
    assert all(dead["dead_letter_reason"].to_pylist())
