"""Executes docs/tutorial.md as written, without Kafka."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tutorial import Reader

for module in ("pyspark", "deltalake", "pydantic"):
    pytest.importorskip(module)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_tutorial_without_kafka(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    reader = Reader(tmp_path)
    reader.does("generate relation")
    reader.does("master build")
    assert "100,000" in reader.does("master info")
    assert "42          216.75  3034" in reader.does("master get")
    pipeline, source = reader.block("yaml", "name: orders"), reader.block("yaml", "format: json")
    pipeline = re.sub(r"^source:.*?^(?=lookups)", source, pipeline, flags=re.M | re.S)
    (tmp_path / "orders.yaml").write_text(pipeline)
    lines = re.findall(r"^    (?:mkdir orders|echo .*)$", reader.text, flags=re.M)
    assert len(lines) == 3
    reader.output_of(["sh", "-c", "\n".join(lines)])
    assert "100,000 rows" in reader.does("run orders.yaml --dry-run")
    said = reader.runs_until(r"run orders\.yaml --ui$", "| 2 rows |")
    assert "live page: http://127.0.0.1:" in said
    assert "650.25" in reader.python("DeltaTable")  # three times 216.75
    dead = pq.read_table(tmp_path / "data/warehouse/orders_unmatched")
    assert dead["order_id"].to_pylist() == [2]
    reader.python("SparkSession")
    again = DeltaTable(tmp_path / "data/warehouse/orders_2").to_pyarrow_table()
    assert again.select(["order_id", "price", "supplier_id"]).to_pylist() == [
        {"order_id": 1, "price": 216.75, "supplier_id": 3034}
    ]
