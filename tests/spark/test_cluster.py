"""Two real executors on one machine: the same rows, a budget for each, also when one dies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import naive
import semistream as ss
from semistream.spark import Metrics
from spark import saboteurs
from spark.streams import (
    Sink,
    check_every_join,
    check_every_join_on_a_stream,
    feed,
    joined,
    master,
    products,
    sales,
    stream_of,
    wait_until,
    wide,
)

MEMORY = 8_000_000
pytestmark = pytest.mark.slow  # executors take half a minute to start


@pytest.mark.parametrize("partitions", [2, 4])
def test_every_join_on_two_executors(cluster: Any, tmp_path: Path, partitions: int) -> None:
    check_every_join(cluster, tmp_path, partitions)


@pytest.mark.parametrize("partitions", [2, 4])
def test_every_join_on_a_stream_on_two_executors(
    cluster: Any, tmp_path: Path, partitions: int
) -> None:
    check_every_join_on_a_stream(cluster, tmp_path, partitions)


def test_a_stream_on_two_executors(cluster: Any, tmp_path: Path) -> None:
    table = master(tmp_path / "products")
    parts = [sales(200, 200 * i) for i in range(3)]
    stream = stream_of(cluster, tmp_path / "in").repartition(4)
    enriched = ss.enrich(stream, table, on="product_id", memory=MEMORY)
    sink = Sink(tmp_path / "out")
    with Metrics(cluster) as metrics:
        for part in parts:
            feed(tmp_path / "in", part)
        sink.run(enriched)
        wait_until(lambda: len(metrics.records) == 3)
    naive.same_rows(sink.read(cluster), naive.join(joined(parts), products(), "product_id"))
    for record in metrics.records:
        (lookup,) = record["lookups"]
        assert lookup["counters"]["tuples_in"] == 200
        # An executor with one core has one worker at a time, which may take all of its budget.
        assert lookup["memory"]["budget"] <= 2 * MEMORY


def test_a_master_table_built_by_two_executors(cluster: Any, tmp_path: Path) -> None:
    df = cluster.createDataFrame(products(2000)).repartition(4)
    table = ss.build_master(df, tmp_path / "t", key="product_id", partitions=4)
    naive.same_rows(naive.rows_of([table.to_table()]), naive.rows_of([products(2000)]))


def test_an_executor_killed_in_mid_batch(cluster: Any, tmp_path: Path) -> None:
    saboteurs.by_value()
    table = master(tmp_path / "products")
    parts = [sales(100), wide(sales(70_000, 100)), sales(100, 70_100)]
    for part in parts:
        feed(tmp_path / "in", part)
    enriched = ss.enrich(stream_of(cluster, tmp_path / "in"), table, on="product_id", memory=MEMORY)
    stage = saboteurs.once(tmp_path / "killed", saboteurs.kill_executor, batch=1)
    sink = Sink(tmp_path / "out")
    sink.run(enriched.mapInArrow(stage, enriched.schema))
    assert (tmp_path / "killed.retried").exists()
    naive.same_rows(sink.read(cluster), naive.join(joined(parts), products(), "product_id"))
