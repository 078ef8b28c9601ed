"""Faults in mid-batch; the sink ends up with exactly the naive join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import naive
import semistream as ss
from spark import saboteurs
from spark.streams import Sink, feed, joined, master, products, sales, stream_of, wide

MEMORY = "8MB"
ROWS = 70_000  # a task returns rows long before it has read all its input


@pytest.fixture(autouse=True)
def _saboteurs_travel() -> None:
    saboteurs.by_value()


def sabotaged(stream: Any, table: Any, stage: Any, **options: Any) -> Any:
    enriched = ss.enrich(stream, table, on="product_id", memory=MEMORY, **options)
    return enriched.mapInArrow(stage, enriched.schema)


def test_a_worker_killed_in_mid_batch(spark: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    parts = [sales(100), wide(sales(ROWS, 100)), sales(100, ROWS + 100)]
    for part in parts:
        feed(tmp_path / "in", part)
    stage = saboteurs.once(tmp_path / "killed", saboteurs.kill_joining_workers, batch=1)
    sink = Sink(tmp_path / "out")
    sink.run(sabotaged(stream_of(spark, tmp_path / "in"), table, stage))
    assert (tmp_path / "killed.retried").exists()
    naive.same_rows(sink.read(spark), naive.join(joined(parts), products(), "product_id"))


@pytest.mark.slow
def test_a_retry_reads_the_version_of_the_first_attempt(spark: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products", products(price=1.0))
    parts = [sales(100), sales(1000, 100), sales(100, 1100)]
    for part in parts:
        feed(tmp_path / "in", part)
    deed = saboteurs.upsert_then_fail(table.path, products(price=2.0))
    stage = saboteurs.once(tmp_path / "failed", deed, batch=1)
    sink = Sink(tmp_path / "out")
    sink.run(sabotaged(stream_of(spark, tmp_path / "in").repartition(2), table, stage))
    assert (tmp_path / "failed.retried").exists()
    prices = [1.0, 1.0, 2.0]
    expected = [
        row
        for part, price in zip(parts, prices, strict=True)
        for row in naive.join(part, products(price=price), "product_id")
    ]
    naive.same_rows(sink.read(spark), expected)


@pytest.mark.slow
def test_a_replay_after_a_restart_reads_the_same_version(spark: Any, tmp_path: Path) -> None:
    """The batch fails permanently, the query stops, the table changes, the query restarts."""
    from pyspark.errors import StreamingQueryException

    table = master(tmp_path / "products", products(price=1.0))
    parts = [sales(100), sales(200, 100)]
    for part in parts:
        feed(tmp_path / "in", part)

    def always(batches: Any) -> Any:
        from pyspark import TaskContext

        for rows in batches:
            if TaskContext.get().getLocalProperty("streaming.sql.batchId") == "1":
                raise RuntimeError("no attempt succeeds")
            yield rows

    stream = stream_of(spark, tmp_path / "in")
    sink = Sink(tmp_path / "out")
    with pytest.raises(StreamingQueryException, match="no attempt succeeds"):
        sink.run(sabotaged(stream, table, always))
    assert table.upsert(products(price=2.0)).vacuum(keep=1).versions == 0
    feed(tmp_path / "in", sales(50, 300))
    sink.run(ss.enrich(stream, table, on="product_id", memory=MEMORY))
    expected = naive.join(joined(parts), products(price=1.0), "product_id")
    expected += naive.join(sales(50, 300), products(price=2.0), "product_id")
    naive.same_rows(sink.read(spark), expected)


@pytest.mark.slow
def test_a_master_table_that_is_deleted_and_restored(spark: Any, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    table = master(tmp_path / "products")
    stream = stream_of(spark, tmp_path / "in").repartition(2)
    enriched = ss.enrich(stream, table, on="product_id", memory=MEMORY)
    sink = Sink(tmp_path / "out")
    feed(tmp_path / "in", sales(100))
    sink.run(enriched)
    (tmp_path / "products").rename(tmp_path / "elsewhere")
    feed(tmp_path / "in", sales(100, 100))
    with pytest.raises(StreamingQueryException, match="MasterTableError: there is no master table"):
        sink.run(enriched)
    assert not (tmp_path / "products").exists()
    (tmp_path / "elsewhere").rename(tmp_path / "products")
    sink.run(enriched)
    naive.same_rows(sink.read(spark), naive.join(sales(200), products(), "product_id"))


@pytest.mark.slow
def test_a_reader_that_stops_early_leaves_nothing_behind(spark: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    df = spark.createDataFrame(sales(30_000)).repartition(2)
    enriched = ss.enrich(df, table, on="product_id", memory=MEMORY)
    assert len(enriched.limit(5).collect()) == 5
    assert enriched.count() == len(naive.join(sales(30_000), products(), "product_id"))
