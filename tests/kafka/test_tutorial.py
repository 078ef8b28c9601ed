"""Executes docs/tutorial.md as written, with a real broker."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import naive

pytest.importorskip("pyspark")
pytest.importorskip("deltalake")
pytest.importorskip("pydantic")

from kafka.broker import connector, kafka_broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

TUTORIAL = Path(__file__).parents[2] / "docs/tutorial.md"
COMMAND = "import sys; sys.argv[0] = 'semistream'; from semistream.cli import main; main()"


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    with kafka_broker() as address:
        yield address


class Reader:
    """Executes the tutorial's blocks, with another folder for /data."""

    def __init__(self, folder: Path, broker: str) -> None:
        self.folder = folder
        self.text = TUTORIAL.read_text().replace("/data/", f"{folder}/data/")
        self.environment = {**os.environ, "KAFKA_SERVERS": broker}
        (folder / "data").mkdir()

    def block(self, language: str, having: str) -> str:
        blocks = re.findall(rf"```{language}\n(.*?)```", self.text, flags=re.DOTALL)
        (found,) = [block for block in blocks if having in block]
        return str(found)

    def arguments(self, begins: str) -> list[str]:
        (line,) = re.findall(rf"^    semistream ({begins}.*?)(?:\s+#.*)?$", self.text, flags=re.M)
        return [sys.executable, "-u", "-c", COMMAND, *line.split()]

    def does(self, begins: str) -> str:
        done = subprocess.run(
            self.arguments(begins),
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def send(broker: str, orders: list[dict[str, Any]]) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    for name, value in connector().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        messages = spark.createDataFrame([(json.dumps(order),) for order in orders], "value string")
        writer = messages.write.format("kafka").option("kafka.bootstrap.servers", broker)
        writer.option("topic", "orders").save()
    finally:
        spark.stop()


def test_the_tutorial(broker: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from deltalake import DeltaTable

    reader = Reader(tmp_path, broker)
    reader.does("generate relation")
    reader.does("master build")
    assert "100,000" in reader.does("master info")
    assert "42 " in reader.does("master get")
    pipeline = reader.block("yaml", "name: orders")
    ((setting, value),) = connector().items()
    # the repository does not have it: use spark.jars, as the tutorial says
    if setting == "spark.jars":
        pipeline += f"spark:\n  spark.jars: {value}\n"
    (tmp_path / "orders.yaml").write_text(pipeline)
    assert "100,000 rows" in reader.does("run orders.yaml --dry-run")

    orders = [
        {"order_id": i, "product_id": i * 37 % 100_200, "quantity": i % 4} for i in range(3_000)
    ]
    send(broker, orders)
    log = tmp_path / "log"
    running_line = r"run orders\.yaml --ui$"
    with open(log, "w") as out:
        running = subprocess.Popen(
            reader.arguments(running_line),
            cwd=tmp_path,
            env=reader.environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        deadline = time.monotonic() + 240
        while "| 3,000 rows |" not in log.read_text():
            assert running.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.3)
        running.send_signal(signal.SIGINT)
        assert running.wait(90) == 0, log.read_text()
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    assert re.search(r"hit rate \d+% \| batch time [\d.]+ s \| lag 0 messages", log.read_text())

    exec(compile(reader.block("python", "DeltaTable"), str(TUTORIAL), "exec"), {})
    assert "amount_sum" in capsys.readouterr().out
    products = pq.read_table(tmp_path / "products.parquet")
    joined = naive.join(
        pa.Table.from_pylist(orders), products, "product_id", select=["price", "supplier_id"]
    )
    expected = [(*row, row[2] * row[3]) for row in joined]
    found = DeltaTable(tmp_path / "data/warehouse/orders").to_pyarrow_table()
    naive.same_rows(naive.rows_of([found]), expected)
    dead = pq.read_table(tmp_path / "data/warehouse/orders_unmatched")
    assert dead.num_rows == len(orders) - len(expected) > 0
    assert all(dead["dead_letter_reason"].to_pylist())
