"""enrich on streams: every join, warm from batch to batch, one version per batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import naive
import semistream as ss
from spark.streams import (
    Sink,
    check_every_join_on_a_stream,
    feed,
    joined,
    master,
    products,
    rows_of,
    sales,
    stream_of,
)

MEMORY = "8MB"


@pytest.mark.parametrize(
    "partitions", [2, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 4))]
)
def test_every_join_on_a_stream(spark: Any, tmp_path: Path, partitions: int) -> None:
    check_every_join_on_a_stream(spark, tmp_path, partitions)


def test_runs_stay_warm_and_the_next_batch_sees_a_new_version(spark: Any, tmp_path: Path) -> None:
    from semistream.spark import Metrics

    table = master(tmp_path / "products", products(price=1.0))
    stream = stream_of(spark, tmp_path / "in").repartition(2)
    enriched = ss.enrich(stream, table, on="product_id", memory=MEMORY)
    sink = Sink(tmp_path / "out")
    expected: naive.Rows = []
    with Metrics(spark) as metrics:
        for batch, price in enumerate([1.0, 2.0, 2.0]):
            if batch == 1:
                ss.MasterTable.open(table.path).upsert(products(price=2.0))
            part = sales(150, 150 * batch)
            feed(tmp_path / "in", part)
            sink.run(enriched)
            expected += naive.join(part, products(price=price), "product_id")
        # Spark uses idle workers in turn, and earlier tests have left some.
        for batch in range(3, 9):
            part = sales(20, 150 * batch)
            feed(tmp_path / "in", part)
            expected += naive.join(part, products(price=2.0), "product_id")
        sink.run(enriched)
        naive.same_rows(sink.read(spark), expected)
        from spark.streams import wait_until

        wait_until(lambda: len(metrics.records) == 9)
    assert [record["lookups"][0]["version"] for record in metrics.records] == [1, *[2] * 8]
    assert metrics.records[0]["warm_tasks"] == 0
    # Restarts of the query and partitions that move between workers leave most runs warm.
    assert sum(record["warm_tasks"] for record in metrics.records[1:]) >= 4


def test_inside_foreach_batch(spark: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    parts = [sales(100), sales(100, 100)]
    for part in parts:
        feed(tmp_path / "in", part)
    found: list[Any] = []

    def write(rows: Any, batch: int) -> None:
        found.extend(rows_of(ss.enrich(rows, table, on="product_id", memory=MEMORY)))

    query = (
        stream_of(spark, tmp_path / "in")
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    naive.same_rows(found, naive.join(joined(parts), products(), "product_id"))
    pins = sorted(path.name.split(".") for path in (tmp_path / "products/pins").iterdir())
    assert [name for name, _ in pins] == [str(query.id)] * 2
    assert [int(batch) for _, batch in pins] == [0, 1]
