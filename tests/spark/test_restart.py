"""The driver killed in mid-batch, and a job through Spark Connect: each in a separate process."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import naive
import semistream as ss
from spark.streams import Sink, feed, joined, master, products, sales, stream_of

pytestmark = pytest.mark.slow
JOB = Path(__file__).with_name("driver_job.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    return subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)


def test_the_driver_killed_in_mid_batch(tmp_path: Path, spark: Any) -> None:
    table = master(tmp_path / "products", products(price=1.0))
    parts = [sales(100), sales(70_000, 100), sales(100, 70_100)]
    for part in parts:
        feed(tmp_path / "in", part)
    first = run(str(JOB), str(tmp_path))
    assert (tmp_path / "killed").exists()
    assert first.returncode != 0
    table.upsert(products(price=2.0))
    enriched = ss.enrich(
        stream_of(spark, tmp_path / "in"), tmp_path / "products", on="product_id", memory="8MB"
    )
    Sink(tmp_path / "out").run(enriched)
    # The sink's log, not the folder, defines the committed files.
    found = naive.rows_of([pq.read_table(committed(tmp_path / "out/rows"))])
    expected = naive.join(joined(parts[:2]), products(price=1.0), "product_id")
    expected += naive.join(parts[2], products(price=2.0), "product_id")
    naive.same_rows(found, expected)


def committed(folder: Path) -> list[str]:
    import json
    from urllib.parse import unquote, urlparse

    files = []
    for log in sorted((folder / "_spark_metadata").iterdir()):
        if log.name.isdigit():
            for line in log.read_text().splitlines()[1:]:
                files.append(unquote(urlparse(json.loads(line)["path"]).path))
    return files


CONNECT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from pyspark.sql import SparkSession
import semistream as ss
import naive
from spark.streams import products, rows_of, sales
spark = SparkSession.builder.remote("local[2]").getOrCreate()
folder = Path(sys.argv[1])
df = spark.createDataFrame(sales(200))
table = ss.build_master(spark.createDataFrame(products()), folder / "t", key="product_id")
for how in naive.HOWS:
    found = rows_of(ss.enrich(df, table, on="product_id", how=how, memory="8MB"))
    naive.same_rows(found, naive.join(sales(200), products(), "product_id", how))
try:
    ss.enrich(df, table, on={"note": "product_id"})
except ss.SchemaError:
    print("all is well")
spark.stop()
"""


@pytest.mark.skipif(importlib.util.find_spec("grpc") is None, reason="pyspark[connect] is missing")
def test_through_spark_connect(tmp_path: Path) -> None:
    done = run("-c", CONNECT, str(tmp_path), str(JOB.parent.parent))
    assert "all is well" in done.stdout, done.stderr[-3000:]
    assert ss.MasterTable.open(tmp_path / "t").num_rows == len(products())
