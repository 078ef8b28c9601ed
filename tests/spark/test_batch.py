"""enrich on DataFrames that end: every join gives the rows of the naive join."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import naive
import semistream as ss
from spark.streams import check_every_join, master, products, rows_of, sales

MEMORY = "8MB"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return master(tmp_path_factory.mktemp("batch") / "products")


@pytest.mark.slow  # the quick run has every join on a stream
@pytest.mark.parametrize("partitions", [1, 2, 4])
def test_every_join(spark: Any, tmp_path: Path, partitions: int) -> None:
    check_every_join(spark, tmp_path, partitions)


@pytest.mark.parametrize("how", naive.HOWS)
def test_every_how_through_transform(spark: Any, table: Any, how: str) -> None:
    stream = sales(200)
    df = spark.createDataFrame(stream)
    enriched = df.transform(ss.enrich, table, on="product_id", how=how, memory=MEMORY)
    naive.same_rows(rows_of(enriched), naive.join(stream, products(), "product_id", how))


def test_select_renames_and_key_of_another_name(spark: Any, table: Any) -> None:
    stream = sales(200).rename_columns(["sale_id", "product", "note"])
    df = spark.createDataFrame(stream)
    on, select = {"product": "product_id"}, {"price": "list_price", "product_id": "id"}
    enriched = ss.enrich(df, table, on=on, how="left", select=select, memory=MEMORY)
    assert enriched.columns == ["sale_id", "product", "note", "list_price", "id"]
    naive.same_rows(rows_of(enriched), naive.join(stream, products(), on, "left", select))


def test_a_path_and_a_join_object_are_accepted(spark: Any, table: Any) -> None:
    stream = sales(200)
    join = ss.HybridJoin(memory="6MB", how="left", disk_buffer_pages=2)
    enriched = ss.enrich(spark.createDataFrame(stream), table.path, on="product_id", using=join)
    naive.same_rows(rows_of(enriched), naive.join(stream, products(), "product_id", "left"))


def test_star_of_master_tables_in_one_crossing(spark: Any, table: Any, tmp_path: Path) -> None:
    customers = pa.table({"customer": [f"c{i}" for i in range(40)], "city": ["x", "y"] * 20})
    people = master(tmp_path / "customers", customers, key="customer", unique=True)
    stream = sales(300).append_column("customer", pa.array([f"c{i % 50}" for i in range(300)]))
    lookups = [
        ss.Lookup(table, on="product_id", select=["price"]),
        ss.Lookup(people, on="customer", how="left"),
    ]
    enriched = ss.enrich(spark.createDataFrame(stream).repartition(2), lookups, memory=MEMORY)
    plan = enriched._jdf.queryExecution().executedPlan().toString()
    assert plan.count("MapInArrow") == 1
    half = naive.join(stream, products(), "product_id", select=["price"])
    halfway = pa.table(
        {name: [row[i] for row in half] for i, name in enumerate([*stream.column_names, "price"])}
    )
    naive.same_rows(rows_of(enriched), naive.join(halfway, customers, "customer", "left"))


def test_empty_stream_and_empty_master(spark: Any, table: Any, tmp_path: Path) -> None:
    empty = sales(10).slice(0, 0)
    df = spark.createDataFrame(sales(10)).where("sale_id < 0")
    assert rows_of(ss.enrich(df, table, on="product_id", memory=MEMORY)) == []
    nothing = master(tmp_path / "nothing", products(1).slice(0, 0))
    df = spark.createDataFrame(sales(10))
    enriched = ss.enrich(df, nothing, on="product_id", how="left", memory=MEMORY)
    naive.same_rows(
        rows_of(enriched), naive.join(sales(10), products(1).slice(0, 0), "product_id", "left")
    )
    assert empty.num_rows == 0


def test_plain_parquet_through_meshjoin(spark: Any, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(products(), tmp_path / "products.parquet")
    stream = sales(200)
    path = str(tmp_path / "products.parquet")
    enriched = ss.enrich(spark.createDataFrame(stream), path, on="product_id", memory="16MB")
    naive.same_rows(rows_of(enriched), naive.join(stream, products(), "product_id"))
    with pytest.raises(ss.ConfigError, match="page index"):
        ss.enrich(spark.createDataFrame(stream), path, on="product_id", using="hybridjoin")


def test_a_batch_query_keeps_its_planned_version(spark: Any, tmp_path: Path) -> None:
    old = master(tmp_path / "products")
    stream = sales(100)
    enriched = ss.enrich(spark.createDataFrame(stream), old, on="product_id", memory=MEMORY)
    old.upsert(products(price=5.0))
    naive.same_rows(rows_of(enriched), naive.join(stream, products(), "product_id"))
    again = ss.enrich(spark.createDataFrame(stream), old.path, on="product_id", memory=MEMORY)
    naive.same_rows(rows_of(again), naive.join(stream, products(price=5.0), "product_id"))


def test_wrong_calls_are_refused_on_the_driver(spark: Any, table: Any) -> None:
    df = spark.createDataFrame(sales(10))
    for wrong, error, match in [
        ({"on": "sale_id"}, ss.SchemaError, "key is"),
        ({"on": {"note": "product_id"}}, ss.SchemaError, "does not widen"),
        ({"on": {"nobody": "product_id"}}, ss.SchemaError, "no column 'nobody'"),
        ({"on": "product_id", "select": ["nothing"]}, ss.SchemaError, "nothing"),
        ({"on": "product_id", "select": {"price": "note"}}, ss.SchemaError, "two columns"),
        ({"on": "product_id", "how": "outer"}, ss.ConfigError, "outer"),
        ({"on": "product_id", "using": "nojoin"}, ss.ConfigError, "nojoin"),
        ({"on": "product_id", "memory": "much"}, ss.ConfigError, "much"),
        ({}, ss.ConfigError, "needs on="),
    ]:
        with pytest.raises(error, match=match):
            ss.enrich(df, table, **wrong)
    with pytest.raises(ss.MasterTableError, match="there is no master table"):
        ss.enrich(df, ss.MasterTable.open("/nowhere/at/all"), on="product_id")
    with pytest.raises(ss.ConfigError, match="Lookup"):
        ss.enrich(df, [table], on=None)
    with pytest.raises(ss.ConfigError, match="set them in each"):
        ss.enrich(df, [ss.Lookup(table, on="product_id")], on="product_id")


def test_a_small_budget_error_states_the_share_of_each_worker(spark: Any, table: Any) -> None:
    enriched = ss.enrich(spark.createDataFrame(sales(10)), table, on="product_id", memory="4kB")
    with pytest.raises(Exception, match="share of the executor's memory is 2"):
        enriched.collect()
